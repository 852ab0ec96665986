"""Where documents come from: uploads, folders and buckets that the server may read, and the request itself.

Nouns: an *entry* is one file of a source, or the fault of a place where one should be. A file is one document, or it
is of *records*, which are documents each: then LIST cuts it into *ranges* and knows nothing of what is in them, and
PARSE reads each range forwards, once. A *fault* names the *part* of the source whose documents are unknown with it.

| file | what it does |
|---|---|
| `source.py` | pages of a listing, and what they have listed is read |
| `uploads.py`, `urls.py` | the entries of a request: files and documents of it; URLs, by `folder.py` and `bucket.py` |
| `roots.py` | what may be read, and what a file is called |
| `content.py` | the bytes of one file |
| `tabular.py`, `record.py` | records: pure functions over bytes, which run in the sandbox of `parsing` |

May import `tasks.ingestion.parsing`, `tasks.records` and `tasks.storage`.

What stands in a line of a page for a range (`Document`): `record` is `[start, length, number, group]`: bytes of a text
file, or rows of a row group; the number of its first record. `records` is how many documents LIST believes to be in it.
PARSE writes in its place a line for each document, whose `record` is the range of this one alone. So

* the page has as many documents as PARSE has found: it says so (`documents`), and LIST's number is a forecast;
* a document that is tried again is read by its own line, and neighbours are read together;
* the rest of a page that is divided begins behind the last document that was read (`rest_of`);
* what makes a whole range unreadable is one line that has failed, with the file as its `part`. It is tried again.
"""
