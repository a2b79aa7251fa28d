"""Stored results become a page that opens in any browser, without a network."""

from .index import MARK as MARK, Entry as Entry, index_page as index_page
from .page import Panel as Panel, page as page
