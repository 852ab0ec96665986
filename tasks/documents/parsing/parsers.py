"""The formats that are read. A new one is a file of its own and one more entry here."""

from tasks.documents.parsing.document_format import DocumentFormat
from tasks.documents.parsing.docx import DOCX
from tasks.documents.parsing.eml import EML
from tasks.documents.parsing.html import HTML
from tasks.documents.parsing.markdown import MARKDOWN
from tasks.documents.parsing.notebook import NOTEBOOK
from tasks.documents.parsing.pdf import PDF
from tasks.documents.parsing.plain_text import TEXT

FORMATS: tuple[DocumentFormat, ...] = (TEXT, MARKDOWN, HTML, PDF, DOCX, EML, NOTEBOOK)
"""In the order in which messages name them, and in which they are asked whether they recognise a file."""

BY_MEDIA_TYPE = {document_format.media_type: document_format for document_format in FORMATS}
