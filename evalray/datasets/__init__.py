"""Where records come from: local files, Hugging Face data sets, and providers of your own."""

from evalray.datasets.base import BadRow, DatasetProvider
from evalray.datasets.locate import open_dataset, preflight
from evalray.datasets.provider import IndexedDataset
from evalray.datasets.stream import StreamedDataset

__all__ = ["BadRow", "DatasetProvider", "IndexedDataset", "StreamedDataset", "open_dataset", "preflight"]
