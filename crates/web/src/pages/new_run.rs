//! The form for a new run.

use maud::{Markup, html};
use serde::Deserialize;

use super::layout::Page;
use crate::actions::Failure;
use crate::app::App;
use crate::new_run::{DEFAULT_ITERATIONS, KnownProject, MAX_PROMPT, RunRequest};
use crate::pages::signs::capitalize;

/// The fields as a person filled them in.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct NewRunForm {
    #[serde(default)]
    directory: String,
    #[serde(default)]
    agent: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    max_iterations: String,
    #[serde(default)]
    check: String,
    /// Browsers leave out a box that is not ticked.
    sandbox: Option<String>,
}

impl Default for NewRunForm {
    fn default() -> NewRunForm {
        NewRunForm {
            directory: String::new(),
            agent: String::new(),
            prompt: String::new(),
            max_iterations: DEFAULT_ITERATIONS.to_string(),
            check: String::new(),
            sandbox: Some("on".to_owned()),
        }
    }
}

impl NewRunForm {
    /// A limit that is no number becomes 0, which is refused.
    pub(crate) fn request(&self) -> RunRequest {
        let NewRunForm { directory, agent, prompt, check, .. } = self.clone();
        let max_iterations = self.max_iterations.trim().parse().unwrap_or(0);
        let sandbox = self.sandbox.is_some();
        RunRequest { directory, agent, prompt, max_iterations, check, sandbox }
    }
}

/// `failure` is why the run did not start; the fields are kept.
pub(crate) fn page(
    app: &App,
    projects: &[KnownProject],
    form: &NewRunForm,
    failure: Option<&Failure>,
) -> Page {
    let body = html! {
        div class="bk" { a class="back" href=(app.link("/")) { "‹ All runs" } }
        div class="rh" { h1 { "New run" } }
        @if projects.is_empty() {
            p class="sub nothing" {
                "No project has runs yet. Start the first one in a terminal: "
                code { "ralph run -n 5 -p \"Make the tests pass. Then answer DONE.\"" }
            }
        } @else {
            (fields(app, projects, form, failure))
        }
    };
    Page { title: "New run".to_owned(), live: None, body }
}

fn fields(
    app: &App,
    projects: &[KnownProject],
    form: &NewRunForm,
    failure: Option<&Failure>,
) -> Markup {
    let problem = failure.map(Failure::message_and_hint);
    html! {
        form class="fields" method="post" action=(app.link("/new")) data-say="starting" {
            label for="directory" { "Project" }
            select id="directory" name="directory" {
                @for KnownProject { name, directory, .. } in projects {
                    option value=(directory) selected[*directory == form.directory] { (name) " (" (directory) ")" }
                }
            }
            label for="prompt" { "What should the agent do?" }
            textarea id="prompt" name="prompt" rows="7" required maxlength=(MAX_PROMPT) aria-describedby="done" { (form.prompt) }
            p class="sub" id="done" {
                "The run is done when the agent answers " code { "<response>DONE</response>" } " and the check passes. Ask for that answer in the prompt."
            }
            label for="check" { "Check " span class="sub" { "a command that must succeed" } }
            input id="check" name="check" value=(form.check) autocomplete="off" autocapitalize="off" spellcheck="false";
            div class="pair" {
                div {
                    label for="agent" { "Agent" }
                    select id="agent" name="agent" {
                        option value="" { "as in the project's settings" }
                        @for agent in &app.agents {
                            option value=(agent) selected[*agent == form.agent] { (agent) }
                        }
                    }
                }
                div {
                    label for="limit" { "Iterations at most" }
                    input id="limit" name="max_iterations" type="number" min="1" required value=(form.max_iterations);
                }
            }
            label class="tick" { input type="checkbox" name="sandbox" checked[form.sandbox.is_some()]; "Isolate the agent in a sandbox" }
            button class="pri" { "Start" }
            p class={ "sub told" @if problem.is_some() { " bad" } } role="status" {
                @if let Some((message, hint)) = &problem { (capitalize(message)) ". " (capitalize(hint)) }
            }
        }
    }
}
