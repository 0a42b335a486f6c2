"""The contract suite for plugins' volume drivers (`kubeletx.api.VolumeDriver`)."""

from .measuring import MeasuringContract
from .preparing import PreparingContract
from .releasing import ReleasingContract


class VolumeDriverContract(PreparingContract, ReleasingContract, MeasuringContract):
    """Tests that every implementation of `kubeletx.api.VolumeDriver` must pass.

    Subclass it and define the fixture `make_driver`; `volume_fields` too, if the driver needs options. `keeps_data`,
    `shared_by_pods`, `serves_block` and the fixture `refused_options` declare properties that a driver may have.
    """


__all__ = ["VolumeDriverContract"]
