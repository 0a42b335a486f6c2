"""The records in memory keep the contract of records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubeletx.api import Records
from kubeletx.testing import FakeRecords
from kubeletx.testing.contract import RecordsContract


class TestFakeRecords(RecordsContract):
    @pytest.fixture
    def open_records(self) -> Callable[[], Records]:
        records = FakeRecords()
        return lambda: records
