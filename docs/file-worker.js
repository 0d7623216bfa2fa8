// Search of a site that is opened from a folder: browsers allow no workers there, so the worker's
// script runs in a hidden frame instead. On a server this does nothing.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = []; // what was sent before the script was there
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const inner = (this.inner = frame.contentWindow);
      inner.postMessage = (data) => this.receive(data);
      inner.importScripts = () => {};
      const script = inner.document.createElement("script");
      script.src = url;
      script.onload = () => {
        for (const data of this.waiting.splice(0)) this.hand(data);
        this.waiting = null;
      };
      inner.document.documentElement.append(script);
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.hand(data);
    }
    hand(data) {
      this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
    }
    receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    terminate() {}
  };
}
