"""Source text of kernels: what is written apart does the same as in its place."""

from types import SimpleNamespace
from typing import Any

from solver.internals import Source


def ran(out: Source, **given: Any) -> dict[str, Any]:
    """What `seen` holds after the text has run as plain Python."""

    def jit(function: Any = None, **_: Any) -> Any:
        return function or (lambda f: f)

    seen: dict[str, Any] = {}
    text = out.function("kernel", [], [*given, "seen"])
    scope: dict[str, Any] = {"triton": SimpleNamespace(jit=jit)}
    exec(text, scope)
    scope["kernel"](*given.values(), seen)
    return seen


def test_lines_apart_are_given_what_they_use_and_give_what_is_asked_for() -> None:
    out = Source()
    out("total = start")
    with out.block("for i in range(0, 4):"), out.apart("total", "last"):
        out("step = i * factor")
        with out.block("if step > 3:"):
            out("total += step")
        out(f"last = {out.new('step + total')}")
    with out.apart():
        out("seen['total'] = total")
        out("seen['last'] = last")
    assert ran(out, start=5, factor=2) == {"total": 15, "last": 21}


def test_parts_within_parts() -> None:
    out = Source()
    x = out.new("start + 1")
    with out.apart("y"):
        out(f"y = {out.new(f'{x} * 2')}")
        with out.apart("y"):
            out(f"y = {out.new(f'y + {x}')}")
    out("seen['y'] = y")
    assert ran(out, start=1) == {"y": 6}


def test_the_same_lines_elsewhere_are_the_same_function() -> None:
    out = Source()
    out("y = start")
    for _ in range(2):
        out.new("y * 3")  # names outside do not matter
        with out.apart("y"):
            out(f"y = {out.new('y * 2')}")
    with out.apart("y"):
        out(f"y = {out.new('y * 5')}")
    out("seen['y'] = y")
    assert ran(out, start=1) == {"y": 20}
    assert out.function("kernel", [], []).count("def part_") == 2
