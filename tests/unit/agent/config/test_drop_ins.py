"""Files in runtimes.d: a runtime joins without a restart, and each mistake is reported once."""

from __future__ import annotations

import structlog

from tests.unit.agent.agent_model import AgentModel, a_pod

THREE = "name: three\nworkloadType: container\nurl: fake://three\n"


async def names(agent: AgentModel) -> list[str]:
    return [view.name for view in await agent.parts.backend.runtimes.list_runtimes()]


async def test_a_file_that_appears_is_a_runtime(agent: AgentModel) -> None:
    async with agent.running():
        directory = agent.config.runtimes_directory
        await agent.until(directory.is_dir)
        (directory / "three.yaml").write_text(THREE)
        await agent.until(lambda: len(agent.parts.registry.handles()) == 3)
        assert await names(agent) == ["one", "two", "three"]
        await agent.apply(a_pod(runtime="three"))


async def test_a_mistake_is_reported_once_and_its_correction_is_enough(agent: AgentModel) -> None:
    with structlog.testing.capture_logs() as said:
        async with agent.running():
            file = agent.config.runtimes_directory / "three.yaml"
            await agent.until(file.parent.is_dir)
            file.write_text(THREE.replace("container", "spaceship"))

            def reported() -> list[str]:
                return [line["err"] for line in said if line["event"] == "Ignored runtime drop-in"]

            await agent.until(reported)
            (file.parent / "unrelated.yaml").write_text(THREE.replace("three", "four"))
            await agent.until(lambda: len(agent.parts.registry.handles()) == 3)
            assert len(reported()) == 1
            assert "spaceship" in reported()[0]
            file.write_text(THREE)
            await agent.until(lambda: len(agent.parts.registry.handles()) == 4)
    assert len(reported()) == 1


async def test_a_cordon_written_as_a_file_counts(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await backend.runtimes.cordon("two")
        (file,) = (agent.root / "root" / "cordons").iterdir()
        file.unlink()
        await agent.until(lambda: not agent.parts.registry.get("two").state.cordoned)
