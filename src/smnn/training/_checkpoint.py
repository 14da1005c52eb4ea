"""Checkpoints on disk: folders that are there as a whole or not at all, and hold no code.

A checkpoint is a folder of `.safetensors` files and one `checkpoint.json`, which names them with
their digests. It is written under another name, brought to the disk, and renamed; a file beside it,
`latest`, is then replaced by one with its name. Reading checks every digest and runs no code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from smnn._util.files import InputError, check_file, read_bounded, write_atomically, writing
from smnn._util.optional import require
from smnn.training._config import digest_of
from smnn.training._errors import CheckpointError

FORMAT = "smnn checkpoint"
VERSION = 1
RECORD = "checkpoint.json"
HIDDEN = ".unfinished-"
LARGEST_RECORD = 64 * 2**20
"""Bytes of a `checkpoint.json`."""


class Checkpoint(NamedTuple):
    """What a checkpoint holds."""

    record: dict[str, Any]
    """JSON-able."""
    tensors: dict[str, dict[str, Tensor]]
    """By file (without its ending), then by name; on the CPU."""


def write_checkpoint(folder: Path, content: Checkpoint) -> Path:
    """Write a checkpoint so that `folder` is complete whenever it exists.

    Raises:
        OutputError: It cannot be written; nothing is left behind.
    """
    with writing(folder):
        return _write_checkpoint(folder, content)


def _write_checkpoint(folder: Path, content: Checkpoint) -> Path:
    temporary: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=HIDDEN))
        digests = {}
        for name, tensors in content.tensors.items():
            data: bytes = _safetensors().save({key: _plain(x) for key, x in tensors.items()})
            digests[name] = hashlib.sha256(data).hexdigest()
            _write_through(temporary / f"{name}.safetensors", data)
        record = {**content.record, "format": FORMAT, "version": VERSION, "files": digests}
        record["digest"] = digest_of(record)
        text = json.dumps(record, indent=1, allow_nan=False) + "\n"
        _write_through(temporary / RECORD, text.encode())
        temporary.chmod(0o777 & ~_umask())
        _sync_folder(temporary)
        if folder.exists():  # left by a run that ended before it was pointed to
            _remove(folder)
        temporary.rename(folder)
        _sync_folder(folder.parent)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return folder


def read_checkpoint(folder: Path, files: Iterable[str] | None = None) -> Checkpoint:
    """Read and check a checkpoint.

    Args:
        folder: Where it is.
        files: Which of its files to read, without endings; all by default.

    Raises:
        CheckpointError: It is not there, not one of ours, or damaged; says which file and how.
    """
    record = _read_record(folder)
    wanted = record["files"] if files is None else [f for f in files if f in record["files"]]
    tensors = {}
    for name in wanted:
        path = folder / f"{name}.safetensors"
        data = _read_bytes(path)
        if hashlib.sha256(data).hexdigest() != record["files"][name]:
            raise _damaged(path, "its contents are not those that were written")
        try:
            tensors[name] = _safetensors().load(data)
        except Exception as error:  # the library has its own class, which is not always there
            raise _damaged(path, f"it does not hold tensors ({error})") from None
    return Checkpoint(record, tensors)


def _read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    try:
        record = json.loads(_read_bytes(path, LARGEST_RECORD))
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"it is not JSON ({error})") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise CheckpointError(f"{path} is not a checkpoint of smnn: it does not say {FORMAT!r}.")
    if record.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {record.get('version')!r} of the format; this smnn reads version "
            f"{VERSION}. Use the smnn that wrote it."
        )
    digest = record.pop("digest", None)
    try:
        own = digest_of(record)
    except (ValueError, RecursionError):
        own = None
    if digest is None or digest != own:
        raise _damaged(path, "its contents are not those that were written")
    files = record.get("files")
    if not isinstance(files, dict) or any(Path(name).name != name for name in files):
        raise _damaged(path, "it does not name the files beside it")
    return record


def _read_bytes(path: Path, most: int | None = None) -> bytes:
    try:
        if most is not None:
            return read_bounded(path, most)
        check_file(path)
        return path.read_bytes()
    except InputError as error:
        raise CheckpointError(str(error)) from None
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(f"there is no {path}; give the folder of a checkpoint.") from None
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}.") from None


def _damaged(path: Path, how: str) -> CheckpointError:
    return CheckpointError(f"{path} is damaged: {how}. Use another checkpoint.")


def point_to(pointer: Path, folder: Path) -> None:
    """Make the file `pointer` name a folder beside it."""
    write_atomically(pointer, folder.name + "\n")
    _sync_folder(pointer.parent)


def pointed_to(pointer: Path) -> Path | None:
    """The folder that a pointer names; `None` where there is no pointer.

    Raises:
        CheckpointError: It does not name a folder beside it.
    """
    try:
        name = pointer.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"cannot read {pointer}: {error}.") from None
    folder = pointer.parent / name
    if name in ("", ".", "..") or Path(name).name != name or not folder.is_dir():
        raise CheckpointError(
            f"{pointer} names {name!r}, which is not there; write the name of a folder beside it."
        )
    return folder


def tidy(parent: Path, keep: Iterable[Path]) -> None:
    """Remove checkpoints that are not to be kept, and what interrupted writing left behind."""
    names = {folder.name for folder in keep}
    for folder in parent.iterdir():
        if folder.is_dir() and folder.name not in names and _is_ours(folder.name):
            _remove(folder)


def _remove(folder: Path) -> None:
    """Under another name first: a folder that is called a checkpoint is never half there."""
    hidden = folder
    if not folder.name.startswith(HIDDEN):
        hidden = folder.with_name(HIDDEN + folder.name)
        shutil.rmtree(hidden, ignore_errors=True)
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _safetensors() -> Any:
    return require("safetensors.torch", "write and read checkpoints")


def _is_ours(name: str) -> bool:
    return name.startswith((HIDDEN, "step-", "best-"))


def _plain(x: Tensor) -> Tensor:
    """On the CPU, contiguous, and sharing memory with nothing: what the format asks for."""
    return x.detach().to("cpu", copy=True).contiguous()


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def state_to_tensors(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split the state of a module into its tensors and its JSON-able rest.

    Raises:
        CheckpointError: Something is neither.
    """
    tensors = {key: x for key, x in state.items() if isinstance(x, Tensor)}
    rest = {key: x for key, x in state.items() if key not in tensors}
    for key, value in rest.items():
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise CheckpointError(
                f"the state {key!r} of the task is a {type(value).__name__} that JSON cannot hold; "
                "return tensors, numbers, strings, lists and dicts from get_extra_state."
            )
    return tensors, rest
