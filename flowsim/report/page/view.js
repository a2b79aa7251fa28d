"use strict";
// How a reader left the plots, in the address of the page: a link that someone else opens shows the same.
class View {
  static MARK = "#view=";

  constructor() {
    this.parts = new Map();
    this.timer = null;
  }

  // Keep a part under a name: `read` returns what is to be kept, "" for how the page opens, and `write` takes that.
  keep(name, read, write) {
    this.parts.set(name, { read, write });
  }

  fragment() {
    const kept = [...this.parts].map(([name, { read }]) => [name, read()]).filter(([, text]) => text !== "");
    return kept.length > 0 ? View.MARK + kept.map((pair) => pair.map(encodeURIComponent).join(":")).join(";") : "";
  }

  link() {
    return location.href.split("#")[0] + this.fragment();
  }

  // Put the view into the address, in place of what stands there, so that going back leaves the page.
  remember() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (!this.fragment() && !location.hash.startsWith(View.MARK)) return;
      try {
        history.replaceState(null, "", this.link());
      } catch {
        // a page within another may have no address of its own
      }
    }, 300);
  }

  // Show what the address says; whatever in it means nothing here is left out.
  restore() {
    if (!location.hash.startsWith(View.MARK)) return;
    const said = new Map();
    for (const part of location.hash.slice(View.MARK.length).split(";")) {
      try {
        const [name, text = ""] = part.split(":").map(decodeURIComponent);
        said.set(name, text);
      } catch {
        // not written by a page
      }
    }
    for (const [name, { write }] of this.parts) write(said.get(name) ?? "");
  }
}
