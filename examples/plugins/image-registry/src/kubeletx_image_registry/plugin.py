"""The hook: registers the admission check ``image-registry``."""

from kubeletx.api import RegisterAdmissionCheck, hookimpl

from .check import ImageRegistry, Settings


@hookimpl
def kubeletx_register_admission_checks(register: RegisterAdmissionCheck) -> None:
    """Register the check, which reviews every new pod once registries are configured."""
    register("image-registry", ImageRegistry, settings=Settings, only_configured=True)
