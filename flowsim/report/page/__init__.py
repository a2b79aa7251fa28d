"""Stored results become a page that opens in any browser, without a network."""

from .page import (
    MARK as MARK,
    Entry as Entry,
    heading as heading,
    index_page as index_page,
    page as page,
    page_of_folders as page_of_folders,
)
