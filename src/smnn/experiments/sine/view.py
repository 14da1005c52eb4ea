"""Tables, figure, animation and report of the sine experiment."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import Any

import numpy as np

from smnn._util.optional import require
from smnn.experiments import views
from smnn.experiments.sine.run import TOLERANCE, Array, Fit, Frame, Sine, rms
from smnn.report import page
from smnn.report.tables import Cell, Row, Table


def tables(result: Sine) -> list[Table]:
    """Estimates with their errors and the Cramér-Rao bounds."""
    n, bounds = result.config.recordings, result.bounds()
    table = Table(
        title="Rates of the learned equations",
        columns=["truth", "found", "error", "bound", f"in {TOLERANCE:.0%}"],
        caption=f"Angular frequency and damping of {n} recordings with an ODE each (mean ± "
        "standard deviation, root mean square error) and with one ODE for all. Errors and bounds "
        "are relative to the truth. Bound: Cramér-Rao, the smallest standard deviation that an "
        f"unbiased estimate from these data can have. Last: errors below {TOLERANCE:.0%}.",
    )
    truth = result.config.frequency, result.config.damping
    for k, name in enumerate(("frequency", "damping")):
        for label, fit, key in (
            (f"{n} ODEs", result.own, "own"),
            ("one ODE", result.shared, "shared"),
        ):
            values = (fit.frequency, fit.damping)[k]
            errors = fit.errors(result.config)[k]
            inside = int(np.sum(np.abs(errors) < TOLERANCE))
            texts = (
                f"{truth[k]:g}", _spread(values), _percent(rms(errors)), _percent(bounds[key][k]),
                f"{inside} of {len(errors)}",
            )  # fmt: skip
            table.rows.append(Row(name, label, [Cell(text) for text in texts]))
    return [table, _discretization(result)]


def _discretization(result: Sine) -> Table:
    config = result.config
    table = Table(
        title="Discretization errors",
        columns=["frequency", "damping"],
        caption="Relative errors of the rates in a solution of the true equation on "
        f"{config.times} even times, by scheme and order of the solver. The fits use smnn with "
        f"order {config.order}.",
    )
    for (scheme, order), errors in result.discretization().items():
        table.rows.append(Row(scheme, f"order {order}", [Cell(f"{abs(e):.0e}") for e in errors]))
    return table


def _spread(values: Array) -> str:
    if len(values) == 1:
        return f"{values[0]:.4f}"
    return f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"


def _percent(x: float) -> str:
    return f"{100 * x:.2f}%"


def summary(result: Sine) -> list[tuple[str, str]]:
    """Key figures and their meaning."""
    frequency, own = result.own.errors(result.config)
    _, damping = result.shared.errors(result.config)
    bound = result.bounds()["own"][1]
    seconds = result.own.seconds + result.shared.seconds
    return [
        (_percent(np.abs(frequency).max()), "largest error of a recording's frequency"),
        (_percent(np.abs(damping).max()), "error of the damping found from all recordings"),
        (
            f"{rms(own) / bound:.2f}",
            "error of the damping from one recording over the Cramér-Rao bound, "
            f"which is {_percent(bound)}",
        ),
        (f"{seconds:.0f} s", "for both fits, on one thread"),
    ]


def notes(result: Sine) -> list[str]:
    """The learned equations."""
    return [f"{name}: {fit.equation}" for name, fit in _fits(result)]


def _fits(result: Sine) -> list[tuple[str, Fit]]:
    return [("An equation each", result.own), ("One equation for all", result.shared)]


def figures(result: Sine) -> dict[str, bytes]:
    """Figure and animation."""
    return {"sine.png": figure(result), "sine.gif": animation(result)}


def figure(result: Sine) -> bytes:
    """A recording with its fit, all estimates with their bounds, and convergence; as PNG."""

    def draw(canvas: Any) -> None:
        grid = canvas.add_gridspec(2, 2)
        _draw_recording(canvas.add_subplot(grid[0, :]), result)
        _draw_estimates(canvas.add_subplot(grid[1, 0]), result)
        _draw_training(canvas.add_subplot(grid[1, 1]), result)

    return views.png((10, 6.4), draw)


def _draw_recording(axes: Any, result: Sine) -> None:
    data = result.data
    axes.plot(data.t, data.noisy[0], ".", ms=3.5, color=views.GREY, label="recording")
    axes.plot(data.t, result.own.curves[0], color=views.BLUE, lw=2.6, alpha=0.6,
              label="learned ODE")  # fmt: skip
    axes.plot(data.t, data.clean, color="black", lw=0.9, ls=(0, (4, 3)), label="without noise")
    axes.set_xlim(data.t[0], data.t[-1])
    axes.set_xlabel("time $t$")
    views.title(axes, "First recording")
    axes.legend(ncols=3, loc="upper right")


def _draw_estimates(axes: Any, result: Sine) -> None:
    frequency, damping = (100 * e for e in result.own.errors(result.config))
    bound = [100 * b for b in result.bounds()["own"]]
    angle = np.linspace(0, 2 * np.pi, 200)
    for size, style in ((1, "-"), (2, ":")):
        axes.plot(
            size * bound[0] * np.cos(angle), size * bound[1] * np.sin(angle), color=views.GREY,
            lw=1, ls=style, label=f"{size} × Cramér-Rao",
        )  # fmt: skip
    axes.axhline(100 * TOLERANCE, color="0.85", lw=0.8)
    axes.axhline(-100 * TOLERANCE, color="0.85", lw=0.8, label=f"{TOLERANCE:.0%}")
    axes.plot(frequency, damping, "o", ms=4, color=views.BLUE, label="an equation each")
    together = [100 * e for e in result.shared.errors(result.config)]
    axes.plot(*together, "s", ms=6, color=views.RED, label="one for all")
    axes.set_xlabel("error of the frequency, %")
    axes.set_ylabel("error of the damping, %")
    views.title(axes, "Estimates")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_training(axes: Any, result: Sine) -> None:
    frames, config = result.own.frames, result.config
    steps = [f.step for f in frames]
    for name, values, colour in (
        ("frequency", [f.frequency / config.frequency for f in frames], views.BLUE),
        ("damping", [f.damping / config.damping for f in frames], views.RED),
    ):
        axes.plot(steps, values, color=colour, lw=1.4, label=name)
    axes.axhline(1, color="black", lw=0.8, ls=(0, (4, 3)))
    axes.set_xlim(1, steps[-1])
    axes.set_ylim(-0.5, 2.5)
    axes.set_xlabel("optimization step")
    axes.set_ylabel("found / truth")
    views.title(axes, "First recording, during training")
    axes.legend(loc="upper right")


def animation(result: Sine, frames: int = 60, width: int = 640) -> bytes:
    """The fit of the first recording during training, as an animated GIF.

    Args:
        result: The experiment.
        frames: Number of pictures, denser at the start of training.
        width: Width in pixels.
    """
    image = require("PIL.Image", "write the animation")
    pictures = []
    with views.style(**{"path.simplify": True}):
        canvas = views.new_figure((6.4, 3.4), dpi=width / 6.4)
        axes = canvas.add_subplot()
        data = result.data
        axes.plot(data.t, data.noisy[0], ".", ms=2.5, color=views.GREY)
        (line,) = axes.plot(data.t, data.clean, color=views.BLUE, lw=1.6)
        axes.set_xlim(data.t[0], data.t[-1])
        axes.set_ylim(*(1.08 * np.abs(data.noisy[0]).max() * np.array([-1, 1])))
        axes.set_xlabel("time $t$")
        title = axes.set_title(" ", loc="left", fontsize=10)
        for frame in chosen(result.own.frames, frames):
            line.set_ydata(frame.curve)
            title.set_text(_title(frame))
            canvas.canvas.draw()
            picture = image.fromarray(np.asarray(canvas.canvas.buffer_rgba())[..., :3].copy())
            pictures.append(picture.quantize(32, dither=image.Dither.NONE))
    file = io.BytesIO()
    durations = [70] * (len(pictures) - 1) + [2500]
    pictures[0].save(
        file, format="GIF", save_all=True, append_images=pictures[1:], duration=durations, loop=0,
        optimize=True,
    )  # fmt: skip
    return file.getvalue()


def chosen(frames: list[Frame], count: int) -> list[Frame]:
    """At most `count` frames including the first and the last, denser at the start."""
    wanted = np.linspace(0, 1, count) ** 2 * (len(frames) - 1)
    return [frames[i] for i in np.unique(wanted.round().astype(int))]


def _title(frame: Frame) -> str:
    c0 = frame.frequency**2 + frame.damping**2
    sign = "-" if frame.damping < 0 else "+"
    equation = f"$y'' {sign} {abs(2 * frame.damping):.3f}\\,y' + {c0:.3f}\\,y = 0$"
    return f"step {frame.step:4d}     {equation}"


def report(result: Sine, figures: dict[str, bytes], command: str) -> str:
    """The HTML report."""
    config = result.config
    first, second = tables(result)
    return views.report(
        "Noisy damped sine",
        "A second-order ODE with free coefficients and steps, fitted to noisy recordings by "
        "gradient descent through the solver.",
        summary(result),
        [
            views.table_section(first, *(f"<p>{_code(x)}</p>" for x in _fits(result))),
            views.table_section(second),
            page.section("The fit during training", _moving(figures["sine.gif"])),
            page.section(
                "Estimates",
                page.picture(
                    figures["sine.png"],
                    "A recording with its fit; errors of all fits; convergence",
                    "The first recording and its learned ODE; errors of frequency and damping of "
                    "all fits with the Cramér-Rao bound; convergence of the first fit.",
                ),
            ),
        ],
        command=command,
        setup={
            "Data": f"{config.recordings} recordings of (sin {config.frequency:g}t + "
            f"{config.noise:g}·noise)·exp(-{config.damping:g}t), {config.times} times up to "
            f"{config.duration:g}, seed {config.seed}",
            "Model": "y″ + c1 y′ + c0 y = 0; c0 > 0 and c1 learned, initial values learned, "
            f"{config.times - 1} learned steps that add up to {config.duration:g}; derivatives "
            f"carried to order {config.order}",
            "Loss": "negative log-likelihood under normal noise whose level and decay are learned, "
            f"and of the steps under a relative deviation of {config.jitter:g}",
            "Start": "frequency at the highest point of the periodogram, no damping, zero "
            "amplitude, equal steps",
            "Learned steps": f"at most {_percent(result.own.unevenness())} (an equation each) and "
            f"{_percent(result.shared.unevenness())} (one for all) from the mean step",
            "Training": f"{config.steps} steps of Adam, one cycle, highest rate {config.lr:g}",
            "Compared": "damping c1/2 and angular frequency √(c0 - c1²/4) with those of the curve "
            "without noise",
        },
        machine=result.machine,
    )


def _code(named: tuple[str, Fit]) -> str:
    name, fit = named
    return f"{escape(name)}: <code>{escape(fit.equation)}</code>"


def _moving(gif: bytes) -> str:
    data = base64.b64encode(gif).decode()
    return (
        '<figure><img alt="The fit of the first recording, step by step" '
        f'src="data:image/gif;base64,{data}">'
        "<figcaption>The learned ODE of the first recording (blue) and the data, step by step."
        "</figcaption></figure>"
    )
