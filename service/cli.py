"""``robal serve``: check everything that can be checked, then start the server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from contract.manifest import Manifest, load_manifest
from service.engine import check_provider
from service.settings import PREFIX, Settings, available_cpus
from service.supervisor import free_address, serve

app = typer.Typer()


def _default(name: str) -> Any:
    return Settings.model_fields[name].default


def _option(name: str, smallest: float | None = None) -> Any:
    """The flag of a setting: its words are the field's."""
    setting = Settings.model_fields[name]
    return typer.Option(help=setting.description, envvar=PREFIX + name.upper(), show_envvar=False, min=smallest)


@app.command("plan", no_args_is_help=True)
def plan_command(
    bundle: Annotated[Path, typer.Argument(help=Settings.model_fields["bundle"].description, show_default=False)],
    goal: Annotated[
        Literal["latency", "throughput"],
        typer.Option(help="What to choose by: the time of a lone text, or texts a second when many wait."),
    ] = "throughput",
    rounds: Annotated[int, typer.Option(help="Times that each way is measured.", min=1, max=50)] = 3,
) -> None:
    """Measure how a bundle runs best on this machine, and remember it beside the bundle.

    Tries threads, instances and providers with every precision, interleaved; a minute or two. `robal serve` then uses
    the best for the goal, unless --threads, --instances or --provider say otherwise, or the machine is another one.

    Example: [bold]robal plan bundles/spam --goal latency[/bold]
    """
    from service.planning import choose, measure, save_plan

    cpus = available_cpus()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        measured = measure(
            bundle,
            cpus=cpus,
            rounds=rounds,
            advance=lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )
    save_plan(bundle, measured, cpus=cpus, goal=goal)
    best = {choose(measured, way.precision, goal) for way in measured}
    table = Table("precision", "provider", "instances", "threads each", "lone text, ms", "texts/s, mixed lengths", "")
    for way in measured:
        table.add_row(
            way.precision,
            way.provider,
            str(way.instances),
            str(way.threads),
            f"{way.lone_ms:.1f}",
            f"{way.texts_per_s:.1f}",
            f"best {goal}" if way in best else "",
        )
    Console().print(table)


def with_plan(settings: Settings, manifest: Manifest) -> Settings:
    """The settings with what `robal plan` found for this bundle on this machine, if it did."""
    from service.planning import planned

    precision = manifest.resolve(settings.precision)
    plan = planned(settings.bundle, precision=precision, cpus=available_cpus())
    if plan is None:
        return settings
    found = {"threads": plan.threads, "instances": plan.instances, "provider": plan.provider}
    return settings.model_copy(update=found)


@app.command("serve")
def serve_command(
    bundle: Annotated[Path, typer.Argument(help=Settings.model_fields["bundle"].description, show_default=False)],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 means all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 3000,
    precision: Annotated[str, _option("precision")] = _default("precision"),
    provider: Annotated[str | None, _option("provider")] = _default("provider"),
    threads: Annotated[int | None, _option("threads", 1)] = _default("threads"),
    instances: Annotated[int | None, _option("instances", 1)] = _default("instances"),
    max_batch_tokens: Annotated[int, _option("max_batch_tokens", 1)] = _default("max_batch_tokens"),
    max_batch_items: Annotated[int, _option("max_batch_items", 1)] = _default("max_batch_items"),
    max_queue_tokens: Annotated[int, _option("max_queue_tokens", 1)] = _default("max_queue_tokens"),
    max_texts: Annotated[int, _option("max_texts", 1)] = _default("max_texts"),
    max_chars: Annotated[int, _option("max_chars", 1)] = _default("max_chars"),
    max_body_bytes: Annotated[int, _option("max_body_bytes", 1)] = _default("max_body_bytes"),
    max_requests: Annotated[int, _option("max_requests", 1)] = _default("max_requests"),
    timeout_s: Annotated[float, _option("timeout_s", 0.001)] = _default("timeout_s"),
    engine_timeout_s: Annotated[float, _option("engine_timeout_s", 0.001)] = _default("engine_timeout_s"),
    verify: Annotated[bool, _option("verify")] = _default("verify"),
) -> None:
    """Serve a bundle over HTTP.

    Checks the bundle and the port, loads and warms the model, says when it is ready, serves until Ctrl-C or SIGTERM,
    and then finishes what it has accepted.

    Example: [bold]robal serve runs/bundle --port 3000[/bold]

    and then: [bold]curl localhost:3000/classify -d '{"inputs": "good morning"}'[/bold]

    /docs explains the API, /info the model and its limits, /metrics counts, /readyz tells when it is ready.

    Each setting from --precision on is also an environment variable, such as ROBAL_MAX_TEXTS.
    """
    settings = Settings(
        bundle=bundle.absolute(),
        precision=precision,
        provider=provider,
        threads=threads,
        instances=instances,
        max_batch_tokens=max_batch_tokens,
        max_batch_items=max_batch_items,
        max_queue_tokens=max_queue_tokens,
        max_texts=max_texts,
        max_chars=max_chars,
        max_body_bytes=max_body_bytes,
        max_requests=max_requests,
        timeout_s=timeout_s,
        engine_timeout_s=engine_timeout_s,
        verify=False,  # for the worker; this process does it below
    )
    with Console(stderr=True).status("checking the bundle") as status:
        manifest = load_manifest(bundle, verify=verify)
        settings.check(manifest)
        if provider is not None:
            check_provider(provider)
        if threads is None and instances is None and provider is None:
            settings = with_plan(settings, manifest)
        address = free_address(host, port)
        status.update(f"loading {manifest.name}")

        def ready() -> None:
            status.stop()
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            model = f"{manifest.name} ({manifest.family}, {manifest.resolve(precision)})"
            print(f"serving {model} on http://{shown}:{address[1]}", flush=True)

        serve(settings, address=address, on_ready=ready)
