"""xDSL's own xdsl-opt, which knows our dialects too, installed or not."""

from __future__ import annotations

from xdsl.xdsl_opt_main import xDSLOptMain

from rpeg.ir.registry import DIALECTS


class StockOpt(xDSLOptMain):
    """Nothing else is ours."""

    def register_all_dialects(self) -> None:
        super().register_all_dialects()
        for name in DIALECTS.keys() - self.ctx.registered_dialect_names:
            self.ctx.register_dialect(name, DIALECTS[name])


if __name__ == "__main__":
    StockOpt().run()
