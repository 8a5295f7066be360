"""The command line."""

TYPE_CHECKING = False  # Importing `typing` takes longer than everything else here.
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: "Sequence[str] | None" = None) -> int:
    """Runs a command line. Returns the exit code: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""
    try:
        # Nothing is imported before, so that an interrupt does not end in a traceback at any time.
        from hff.cli.command import run

        return run(argv)
    except KeyboardInterrupt:
        import sys

        sys.stderr.write("hff: Interrupted.\n")
        return 130


__all__ = ["main"]
