"""How command groups list their options: a flag that takes no value shows none in the help."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Group(TyperGroup):
    """A group whose flags, and those of its commands, are shown without ``<bool>`` behind them."""

    def get_params(self, ctx: Any) -> Any:
        return _bare(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            # The option for help is made when it is asked for, and kept.
            _bare([*command.params, command.get_help_option(ctx)])
        return command


def _bare(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters
