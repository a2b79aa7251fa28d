"use strict";
// Search in a site that is read from a folder: there browsers refuse workers, and a hidden frame does a worker's work.
// The search of the theme loads its index from a script then, and knows a frame by the name IFrameWorker.
if (location.protocol === "file:") {
  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const { contentWindow: inside, contentDocument: page } = this.frame;
      page.open();
      page.write("<!DOCTYPE html><body></body>");
      page.close();
      inside.postMessage = (data) => { this.dispatchEvent(new MessageEvent("message", { data })); };
      inside.importScripts = (...urls) => Promise.all(urls.map((one) => IFrameWorker.run(page, one)));
      this.ready = IFrameWorker.run(page, url);
    }

    // Run a script in a page, and return a promise of its end.
    static run(page, url) {
      return new Promise((resolve, reject) => {
        const script = page.createElement("script");
        Object.assign(script, { src: url, onload: resolve, onerror: () => reject(new Error(`${url} does not load`)) });
        page.body.append(script);
      });
    }

    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  }
  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
}
