"""Component of the agent: the runtimes' image stores, and credentials for registries."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeletx.api import ClusterObjects
from kubeletx.runtimes.images.credentials import NodeCredentials, default_paths
from kubeletx.runtimes.images.node_credentials import ImageCredentials
from kubeletx.runtimes.images.providers import CredentialProviders
from kubeletx.runtimes.images.records import METADATA as IMAGE_TABLES
from kubeletx.runtimes.images.records import ImageRecords
from kubeletx.runtimes.images.stores import ImageStores

from .part import Part, PartContext
from .runtimes import RuntimesAssembly
from .settings import provider_plan, pull_settings


class ImagesAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_images`: the image stores of the runtimes.

    `records`: database records of the images that the agent pulled. `providers`: the configured credential providers.
    """

    part: Part
    stores: ImageStores
    records: ImageRecords
    providers: CredentialProviders


def make_images(
    ctx: PartContext, runtimes: RuntimesAssembly, objects: Mapping[str, ClusterObjects]
) -> ImagesAssembly:
    """Build the image stores and the configured credential providers.

    `objects`: access to the cluster's objects by name of the pod source, for the service accounts of pods.
    """
    records = ImageRecords(ctx.store)
    providers = CredentialProviders(provider_plan(ctx.config), cluster=objects, clock=ctx.clock)
    node_credentials = NodeCredentials(default_paths(ctx.config.root_dir))
    stores = ImageStores(
        runtimes.registry,
        clock=ctx.clock,
        records=records,
        credentials=ImageCredentials(node_credentials, providers),
        settings=pull_settings(ctx.config),
    )
    return ImagesAssembly(
        part=Part(
            name="images", tables=(IMAGE_TABLES,), load=records.load, close=(providers.close, stores.close)
        ),
        stores=stores,
        records=records,
        providers=providers,
    )
