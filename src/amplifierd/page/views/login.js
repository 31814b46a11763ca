// The way in: a token typed or pasted. Who has a link of `amplifier daemon open` does not see this.

import { request } from "../lib/api.js";
import { fill, h, LOGO, setText } from "../lib/dom.js";
import { setTitle } from "../lib/title.js";
import { View } from "../lib/view.js";

class LoginView extends View {
  onLogin = () => {};

  open() {
    setTitle("Log in");
    const who = h("input", { type: "text", name: "username", autocomplete: "username", value: "amplifier", hidden: true, readOnly: true });
    const field = h("input", {
      id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: false, "aria-describedby": "token-help",
    });
    const problem = h("p.field-error", { role: "alert" });
    const button = h("button.primary", { type: "submit" }, "Log in");
    const form = h("form.login", {
      onsubmit: async (event) => {
        event.preventDefault();
        button.disabled = true;
        setText(problem, "");
        try {
          await request("POST", "/auth/login", { body: { token: field.value.trim() } });
          this.onLogin();
        } catch (error) {
          setText(problem, explain(error));
          field.select();
        } finally {
          button.disabled = false;
        }
      },
    },
    h("img", { src: LOGO, alt: "", width: 40, height: 40 }),
    h("h1", "Amplifier"),
    h("p.muted", `Log in to the daemon at ${location.host}.`),
    h("label", { htmlFor: "token" }, "Token"), who, field, problem, button,
    h("p.muted.small", { id: "token-help" }, "Or run ", h("code", "amplifier daemon open"),
      ": it opens this page, logged in. The token is in ", h("code", "config/token"), " of the daemon's home."));
    fill(this, h("main.login-page", { id: "main" }, form));
    field.focus();
  }
}

function explain(error) {
  if (error.status === 401) return "The daemon does not know this token.";
  if (error.status === 429) return `Too many attempts. Try again in ${Math.ceil(error.retry_after_seconds ?? 60)} s.`;
  return error.message;
}

customElements.define("view-login", LoginView);
export default LoginView;
