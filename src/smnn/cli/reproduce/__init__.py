"""`smnn reproduce`: the experiments of the paper, one command each."""

import typer

from smnn.cli.reproduce import discovery_bench, kdv, lorenz, scaling, sine, sst, standalone

app = typer.Typer(help="Reproduce an experiment of the paper.", no_args_is_help=True)
app.command("standalone")(standalone.standalone)
app.command("sine")(sine.sine)
app.command("kdv")(kdv.kdv)
app.command("lorenz")(lorenz.lorenz)
app.command("sst")(sst.sst)
app.command("scaling")(scaling.scaling)
app.command("discovery-bench")(discovery_bench.discovery_bench)


@app.callback()
def _group() -> None:
    pass


__all__ = ["app"]
