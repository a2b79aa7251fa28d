"use strict";
// What a reader takes along: a table to be copied, and text in general.
const clipboard = (() => {
  // Where there is no access to the clipboard, as on a page of a server without encryption.
  function copyAsSelected(text) {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    document.addEventListener("copy", give);
    const done = document.execCommand("copy");
    document.removeEventListener("copy", give);
    return done;
  }

  async function written(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyAsSelected(text);
    }
  }

  // Return a button that copies what `text` returns, and says so for a while.
  function button(words, label, text) {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: words });
    made.setAttribute("aria-label", label);
    made.addEventListener("click", async () => {
      made.textContent = (await written(text())) ? "Copied" : "Cannot copy";
      setTimeout(() => { made.textContent = words; }, 1500);
    });
    return made;
  }

  // The cells of a table as they stand in it, with tabs between: spreadsheets take them apart.
  function asText(table) {
    const words = (cell) => cell.innerText.replace(/\s+/g, " ").trim();
    return Array.from(table.rows, (row) => Array.from(row.cells, words).join("\t")).join("\n") + "\n";
  }

  for (const table of document.querySelectorAll(".tables table, .readout table")) {
    const tools = Object.assign(document.createElement("p"), { className: "tools" });
    const name = table.caption?.innerText ?? "";
    tools.append(button("Copy table", `Copy the table ${name}`, () => asText(table)));
    table.after(tools);
  }

  return { button };
})();
