// A conversation: what was said and done, live.

import { get, ofSession } from "../../lib/api.js";
import { fill, h } from "../../lib/dom.js";
import { loading, View } from "../../lib/view.js";

class ConversationView extends View {
  async open() {
    fill(this, loading("Loading the conversation…"));
    const { messages } = await get(ofSession(this.params.id, "/messages"), { limit: 100 }, { signal: this.signal });
    fill(this, messages.map((message) => h("pre", `${message.role}: ${JSON.stringify(message.content)}`)));
  }
}

customElements.define("view-conversation", ConversationView);
export default ConversationView;
