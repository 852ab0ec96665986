"""Datasets: list, read, delete, search, documents, chunks.

Answers of the last three may be large: a thread makes their bytes, and they count as long as they are sent.
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from api.auth import IngestionMaker, IngestionReader, Reader
from api.dependencies import Datasets, LargeJSON, PageQuery, json_body, read_json
from api.schemas.answer_parts import Page
from api.schemas.datasets import Chunk, Dataset, DeletedDataset, Document, ScoredChunks, SearchBody

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

Search = Annotated[SearchBody, Depends(read_json(SearchBody))]
DocumentId = Annotated[str | None, Query(description="Of one document alone.")]


@router.get("")
async def list_datasets(key: IngestionReader, datasets: Datasets, page: PageQuery) -> Page[Dataset]:
    """Lists the caller's datasets. Their names are the places of a page."""
    return await datasets.list(key, page)


@router.get("/{name}")
async def read_dataset(key: IngestionReader, datasets: Datasets, name: str) -> Dataset:
    """Returns a dataset as it is now."""
    return await datasets.read(key, name)


@router.delete("/{name}")
async def delete_dataset(key: IngestionMaker, datasets: Datasets, name: str) -> DeletedDataset:
    """Deletes a dataset for good, with all its vectors. A load that is writing is waited for, then it is 503.

    An ingestion that is loading into it ends with `dataset_deleted`.
    """
    await datasets.delete(key, name)
    return DeletedDataset(name=name)


@router.post("/{name}/search", response_model=ScoredChunks, openapi_extra=json_body(SearchBody))
async def search_dataset(key: Reader, datasets: Datasets, name: str, body: Search, answer: LargeJSON) -> Response:
    """Returns the chunks of a dataset that fit a text or a vector best: by meaning, by words, or both."""
    return await answer(datasets.search(key, name, body))


@router.get("/{name}/documents", response_model=Page[Document])
async def list_dataset_documents(
    key: Reader, datasets: Datasets, name: str, page: PageQuery, answer: LargeJSON
) -> Response:
    """Lists the documents of a dataset that have chunks, in the order of the dataset."""
    return await answer(datasets.documents(key, name, page))


@router.get("/{name}/chunks", response_model=Page[Chunk])
async def list_dataset_chunks(
    key: Reader, datasets: Datasets, name: str, page: PageQuery, answer: LargeJSON, *, document_id: DocumentId = None
) -> Response:
    """Lists the chunks of a dataset, or of one of its documents, in the order of documents and of chunks in them."""
    return await answer(datasets.chunks(key, name, page, document_id))
