"""Stored results become a page that opens in any browser, without a network."""

from .page import MARK as MARK, Entry as Entry, Panel as Panel, index_page as index_page, page as page
