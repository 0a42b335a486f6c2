"""Config maps and secrets of the node, on a whole agent with fake runtimes."""

from __future__ import annotations

from pathlib import Path

from kubeletx.kube.manifests.load import load_all
from tests.unit.agent.agent_model import AgentModel

SECRET = b"{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {user: me, password: 'VALUE'}}"


async def test_a_dry_run_marks_the_changed_values_of_a_secret(tmp_path: Path) -> None:
    old, new = (load_all(SECRET.replace(b"VALUE", value), "x").objects[0].item for value in (b"12", b"34"))
    async with AgentModel(tmp_path).running() as backend:
        for dry_run, item in ((True, old), (False, old), (True, old)):
            result = await backend.objects.apply_object(item, dry_run=dry_run)
            assert result.object["data"] == {"user": "<2 bytes>", "password": "<2 bytes>"}
        (before,) = await backend.objects.list_objects("Secret")
        await backend.objects.apply_object(old)
        assert await backend.objects.list_objects("Secret") == [before]
        result = await backend.objects.apply_object(new, dry_run=True)
        assert result.object["data"] == {"user": "<2 bytes>", "password": "*** (after)"}
        await backend.objects.apply_object(new)
        (after,) = await backend.objects.list_objects("Secret")
        assert after["data"] == before["data"]
        assert after != before, "a watch compares them"
