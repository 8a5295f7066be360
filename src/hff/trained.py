"""Trained runs: their method, probabilities and early exit, and their evaluation on their own or new data."""

import warnings
from dataclasses import replace
from pathlib import Path

from hff.data import DataSet, datasets, load_data
from hff.errors import UserError
from hff.evaluation import (
    Calibration,
    EarlyExit,
    Evaluation,
    Split,
    calibrate,
    calibrate_exit,
    evaluate,
)
from hff.experiment import Experiment
from hff.methods import Method
from hff.training import Run, pick_device


def load_method(run: Run | Path | str, *, epoch: int | None = None) -> Method:
    """The trained method of a run or of the run in a folder, in evaluation mode.

    With an epoch, it has the weights that were kept after that epoch (`keep_checkpoints`).
    """
    run = run if isinstance(run, Run) else Run.open(run)
    method = Experiment.from_run(run).create_method(run.preprocessing.size, len(run.classes))
    run.load_weights(method, epoch=epoch)
    method.preprocessing, method.class_names = run.preprocessing, run.classes
    method.early_exit = run.early_exit if epoch is None else None
    return method.eval()


def calibration_of(
    run: Run,
    method: Method,
    *,
    data: DataSet | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
) -> Calibration:
    """The scales that turn the scores of a run into probabilities.

    They are fitted on the validation split and saved, unless they have been saved before. The scales of an
    unfinished run are not saved.
    """
    found = run.calibration
    if found is None:
        data = replace(data or _own_data(run, data_dir), preprocessing=run.preprocessing)
        found = calibrate(method, data, device=pick_device(device))
        if run.finished:
            run.save_calibration(found)
    return found


def early_exit_of(
    run: Run,
    method: Method,
    threshold: float | None = None,
    *,
    epsilon: float = 0.005,
    delta: float = 0.05,
    data: DataSet | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
) -> EarlyExit:
    """The policy of early exit of a run.

    Without a threshold, `calibrate_exit` chooses one on the validation split. It is saved in the folder of a
    finished run, and `load_method` sets it as `method.early_exit`.

    Args:
        run: the run.
        method: the method of the run.
        threshold: a plain threshold of the probability, without a guarantee.
        epsilon: the largest loss of accuracy.
        delta: the probability that the loss is larger.
        data: the data of the run; loaded if not given.
        data_dir: the folder of data files.
        device: the device to compute on.
    """
    if threshold is not None:
        scales = calibration_of(run, method, data=data, data_dir=data_dir, device=device).layers
        return EarlyExit(threshold, scales)
    data = replace(data or _own_data(run, data_dir), preprocessing=run.preprocessing)
    found = calibrate_exit(method, data, epsilon, delta, device=pick_device(device))
    if run.finished:
        run.save_early_exit(found)
    method.early_exit = found
    return found


def evaluate_run(
    run: Run,
    split: Split | None = None,
    *,
    path: Path | str | None = None,
    data_dir: Path | None = None,
    device: str = "auto",
    data: DataSet | None = None,
) -> Evaluation:
    """Evaluates a run on a split of its own data, or on new labeled data.

    Args:
        run: the run.
        split: the split to evaluate on. The default is "test", and "all" for new data.
        path: a folder of images or an .npz file, if the data of the run is in another place now, or for new
            labeled data. New data may lack some of the classes of the run. If the path holds other data than
            the run was trained on, all of its examples are used by default.
        data_dir: the folder of data files.
        device: the device to compute on.
        data: the data of the run; loaded if not given.

    Returns:
        The evaluation. It is saved in the run folder, unless the data is new.
    """
    method = load_method(run)
    given, is_new = evaluation_data(run, path=path, data_dir=data_dir, data=data)
    calibration = _calibration(run, method, None if is_new else given, data_dir, device)
    split = split or ("all" if is_new else "test")
    result = evaluate(method, given, split, device=pick_device(device), calibration=calibration)
    if not is_new:
        run.save_evaluation(split, result.to_json())
    return result


def evaluation_data(
    run: Run, *, path: Path | str | None = None, data_dir: Path | None = None, data: DataSet | None = None
) -> tuple[DataSet, bool]:
    """The data to evaluate a run on, with its preprocessing, and whether it is new to the run.

    The parameters are those of `evaluate_run`.
    """
    if path is not None:
        given, is_new = _data_at(run, Path(path), data_dir)
    else:
        given, is_new = data or _own_data(run, data_dir), False
        if given.classes != run.classes:
            raise UserError(
                f"The data set {given.name} has other classes now than when {run.folder} was trained; "
                "use the data it was trained on, or pass the new data as a path."
            )
        if run.fingerprint not in (None, given.fingerprint):
            warnings.warn(
                f"The data has changed since {run.folder} was trained, so its splits may share examples with "
                "the training.",
                stacklevel=3,
            )
    preprocessing = run.preprocessing
    if is_new:
        # New images may be stored in another range, such as bytes for digits of 0 to 16.
        preprocessing = replace(preprocessing, scale=given.preprocessing.scale)
    return replace(given, preprocessing=preprocessing), is_new


def _calibration(
    run: Run, method: Method, data: DataSet | None, data_dir: Path | None, device: str
) -> Calibration | None:
    """The calibration of a run. None if it is not saved and the data of the run is not there anymore."""
    try:
        return calibration_of(run, method, data=data, data_dir=data_dir, device=device)
    except UserError:
        if data is not None:
            raise
        return None


def _own_data(run: Run, data_dir: Path | None) -> DataSet:
    experiment = Experiment.from_run(run)
    path: Path | None = experiment.data.options.get("path")
    if path is not None and not path.exists():
        raise UserError(
            f"The data of {run.folder} is no longer at {path}; give the path where it is now (--data.path)."
        )
    return experiment.load_data(data_dir)


def _data_at(run: Run, path: Path, data_dir: Path | None) -> tuple[DataSet, bool]:
    """The data at a path, and whether it differs from the data of the run."""
    own = Experiment.from_run(run)
    if datasets.find(own.data.name).takes_path:
        try:
            moved = own.load_data(data_dir, path=path)
        except UserError:
            pass  # New data may be too small for the splits of the run; it is loaded whole below.
        else:
            if moved.fingerprint == run.fingerprint and moved.classes == run.classes:
                return moved, False
    if not path.exists():
        raise UserError(f"There is no file or folder {path}.")
    kind = "npz" if path.is_file() else "folder"
    bad_images = own.data.options.get("bad_images", "refuse")
    found = load_data(
        kind, path=path, validation=0, augment="none", in_shape=run.preprocessing.size, bad_images=bad_images
    )
    return found.with_classes(run.classes), True
