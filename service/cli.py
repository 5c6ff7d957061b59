"""``robal serve``: check everything that can be checked, then start the server."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from contract.errors import UsageError, listing
from contract.manifest import Manifest, load_manifest
from service.engine import check_provider
from service.keys import Keys
from service.logs import LogFormat
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


def _read_settings(path: Path | None) -> dict[str, Any]:
    """A settings file: TOML with the names of the flags. Raises UsageError for a file or a name that is none."""
    if path is None:
        return {}
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--settings {path} cannot be read as TOML ({error}).") from None
    known = {*Settings.model_fields, "host", "port"} - {"bundle"}
    names = {name.replace("-", "_"): value for name, value in values.items()}
    if unknown := names.keys() - known:
        raise UsageError(f"{path} has {listing(unknown)}, which is no setting; there are {listing(known, limit=99)}.")
    return names


def gathered(ctx: typer.Context, path: Path | None) -> dict[str, tuple[Any, str]]:
    """Every setting with where it came from: a flag goes before a variable, that before the file, last a default."""
    from_file = _read_settings(path)
    origins = {"COMMANDLINE": "flag", "ENVIRONMENT": "variable"}  # by name: typer brings a click of its own
    found = {}
    for name in ("host", "port", *(name for name in Settings.model_fields if name != "bundle")):
        source = ctx.get_parameter_source(name)
        origin = origins.get(source.name) if source is not None else None
        if origin is None and name in from_file:
            found[name] = (from_file[name], f"{path}")
        else:
            found[name] = (ctx.params[name], origin or "default")
    return found


def _checked(bundle: Path, found: dict[str, tuple[Any, str]]) -> Settings:
    """The settings as an object; a value from a file may still be wrong."""
    values = {name: value for name, (value, _) in found.items() if name in Settings.model_fields}
    if values["api_keys"] is not None:
        values["api_keys"] = Path(values["api_keys"]).absolute()  # the worker starts in another folder
    try:
        return Settings(bundle=bundle.absolute(), **values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise UsageError(f"{name} = {found[name][0]!r} ({found[name][1]}): {first['msg'].lower()}.") from None


@app.command("serve")
def serve_command(
    ctx: typer.Context,
    bundle: Annotated[Path, typer.Argument(help=Settings.model_fields["bundle"].description, show_default=False)],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 means all of this machine's.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)] = 3000,
    settings_file: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="TOML file with any of the settings below.")
    ] = None,
    print_settings: Annotated[
        bool, typer.Option("--print-settings", help="Show each setting and where it comes from, and serve nothing.")
    ] = False,
    precision: Annotated[str, _option("precision")] = _default("precision"),
    provider: Annotated[str | None, _option("provider")] = _default("provider"),
    threads: Annotated[int | None, _option("threads", 1)] = _default("threads"),
    instances: Annotated[int | None, _option("instances", 1)] = _default("instances"),
    max_batch_tokens: Annotated[int, _option("max_batch_tokens", 1)] = _default("max_batch_tokens"),
    max_batch_items: Annotated[int, _option("max_batch_items", 1)] = _default("max_batch_items"),
    max_queue_tokens: Annotated[int, _option("max_queue_tokens", 1)] = _default("max_queue_tokens"),
    max_texts: Annotated[int, _option("max_texts", 1)] = _default("max_texts"),
    max_explain_parts: Annotated[int, _option("max_explain_parts", 1)] = _default("max_explain_parts"),
    max_chars: Annotated[int, _option("max_chars", 1)] = _default("max_chars"),
    max_body_bytes: Annotated[int, _option("max_body_bytes", 1)] = _default("max_body_bytes"),
    max_requests: Annotated[int, _option("max_requests", 1)] = _default("max_requests"),
    timeout_s: Annotated[float, _option("timeout_s", 0.001)] = _default("timeout_s"),
    engine_timeout_s: Annotated[float, _option("engine_timeout_s", 0.001)] = _default("engine_timeout_s"),
    drain_s: Annotated[float, _option("drain_s", 0)] = _default("drain_s"),
    api_keys: Annotated[Path | None, _option("api_keys")] = None,
    log_format: Annotated[LogFormat, _option("log_format")] = "text",
    log_requests: Annotated[bool, _option("log_requests")] = _default("log_requests"),
    verify: Annotated[bool, _option("verify")] = _default("verify"),
) -> None:
    """Serve a bundle over HTTP.

    Checks the bundle and the port, loads and warms the model, says when it is ready, serves until Ctrl-C or SIGTERM,
    and then finishes what it has accepted.

    Example: [bold]robal serve runs/bundle --port 3000[/bold]

    and then: [bold]curl localhost:3000/classify -d '{"inputs": "good morning"}'[/bold]

    /docs explains the API, /info the model and its limits, /metrics counts, /readyz tells when it is ready.

    Each setting from --precision on is also an environment variable, such as ROBAL_MAX_TEXTS, and a name in the file of
    --settings, such as max_texts. A flag goes before a variable, and that before the file.
    """
    found = gathered(ctx, settings_file)
    settings = _checked(bundle, found)
    if print_settings:
        table = Table("setting", "value", "from")
        for name, (value, origin) in found.items():
            table.add_row(name, "" if value is None else str(value), origin)
        Console().print(table)
        return
    if settings.api_keys is not None:
        Keys.read(settings.api_keys)
    with Console(stderr=True).status("checking the bundle") as status:
        manifest = load_manifest(bundle, verify=settings.verify)
        settings.check(manifest)
        if settings.provider is not None:
            check_provider(settings.provider)
        if settings.threads is None and settings.instances is None and settings.provider is None:
            settings = with_plan(settings, manifest)
        address = free_address(str(found["host"][0]), found["port"][0])
        status.update(f"loading {manifest.name}")

        def ready() -> None:
            status.stop()
            shown = f"[{address[0]}]" if ":" in address[0] else address[0]
            model = f"{manifest.name} ({manifest.family}, {manifest.resolve(settings.precision)})"
            print(f"serving {model} on http://{shown}:{address[1]}", flush=True)

        # The worker need not verify again what this process just did.
        serve(settings.model_copy(update={"verify": False}), address=address, on_ready=ready)
