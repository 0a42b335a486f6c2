"""Image stores of the runtimes, and credentials for registries."""

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
from .runtimes import RuntimesRoom
from .settings import provider_plan, pull_settings


class ImagesRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_images`: the part, the image stores and what they use.

    `records`: the images that the agent pulled.
    """

    part: Part
    stores: ImageStores
    records: ImageRecords
    providers: CredentialProviders


def make_images(
    ctx: PartContext, runtimes: RuntimesRoom, objects: Mapping[str, ClusterObjects]
) -> ImagesRoom:
    """Make the image stores and the configured credential providers.

    `objects`: by pod source, access to the cluster's objects, for pull secrets.
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
    return ImagesRoom(
        part=Part(
            name="images", tables=(IMAGE_TABLES,), load=records.load, close=(providers.close, stores.close)
        ),
        stores=stores,
        records=records,
        providers=providers,
    )
