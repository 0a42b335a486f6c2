"""Component of the agent: the runtimes' image stores, and credentials for registries."""

from __future__ import annotations

import msgspec

from kubeletx.pods.model.sources import API
from kubeletx.runtimes.images.credentials import NodeCredentials, default_paths
from kubeletx.runtimes.images.providers import CredentialProviders, ImageCredentials
from kubeletx.runtimes.images.records import METADATA as IMAGE_TABLES
from kubeletx.runtimes.images.records import ImageRecords
from kubeletx.runtimes.images.stores import ImageStores

from .part import Part, PartContext
from .runtimes import RuntimesAssembly
from .settings import provider_plan, pull_settings


class ImagesAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The image stores of the runtimes, and database records of the images that the agent pulled."""

    stores: ImageStores
    records: ImageRecords


def make_images(ctx: PartContext, runtimes: RuntimesAssembly) -> ImagesAssembly:
    """Build the image stores and the configured credential providers."""
    records = ImageRecords(ctx.store)
    clusters = {name: objects for name, objects in ctx.made.objects.items() if name == API}
    providers = CredentialProviders(provider_plan(ctx.config), cluster=clusters, clock=ctx.clock)
    node_credentials = NodeCredentials(default_paths(ctx.config.root_dir))
    stores = ImageStores(
        runtimes.registry,
        clock=ctx.clock,
        records=records,
        credentials=ImageCredentials(node_credentials, providers),
        settings=pull_settings(ctx.config),
    )
    ctx.made.add(
        Part(
            name="images",
            tables=(IMAGE_TABLES,),
            load=records.load,
            metrics=providers.metrics(),
            close=(providers.close, stores.close),
        )
    )
    return ImagesAssembly(stores=stores, records=records)
