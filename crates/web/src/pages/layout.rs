//! The frame of every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::app::App;
use crate::assets;
use crate::tokens::Access;

/// A page before it is put into its frame.
pub(crate) struct Page {
    /// Before ` · ralph` in the title.
    pub title: String,
    /// The stream that keeps the page current.
    pub live: Option<String>,
    pub body: Markup,
}

pub(crate) fn render(app: &App, access: Access, page: &Page) -> String {
    let link = |path: &str| app.link(path);
    let asset = |name: &str| app.link(&assets::path_of(name));
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (head(app, &page.title))
                link rel="manifest" href=(link("/assets/manifest.webmanifest")) crossorigin="use-credentials";
                script src=(asset("app.js")) {}
            }
            body data-live=[page.live.as_deref()] data-base=(app.address.prefix()) data-readonly[access == Access::ReadOnly] {
                a class="vh skip" href="#main" { "Skip to content" }
                header class="top" {
                    div class="wrap" {
                        a class="home" href=(link("/")) { "ralph" }
                        @if access == Access::Full { a class="start" id="b-new" href=(link("/new")) { "New run" } }
                        span class="state" {
                            @if access == Access::ReadOnly { span class="ro" { "read-only" } }
                            span class="live" id="live" hidden { "live" }
                        }
                        button class="ic" type="button" id="theme" hidden aria-label="Switch between light and dark" { "◐" }
                    }
                }
                div class="vh" role="status" aria-live="polite" id="say" {}
                main id="main" class="wrap" tabindex="-1" { (page.body) }
            }
        }
    }
    .into_string()
}

fn head(app: &App, title: &str) -> Markup {
    let asset = |name: &str| app.link(&assets::path_of(name));
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width,initial-scale=1,viewport-fit=cover";
        title { @if !title.is_empty() { (title) " · " } "ralph" }
        meta name="theme-color" content="#f7f9f8" media="(prefers-color-scheme:light)";
        meta name="theme-color" content="#0f1413" media="(prefers-color-scheme:dark)";
        link rel="stylesheet" href=(asset("style.css"));
        link rel="icon" type="image/svg+xml" href=(asset("icon.svg"));
        link rel="apple-touch-icon" href=(asset("icon-180.png"));
    }
}

/// A page with one message. Says nothing about runs, and loads nothing that needs a token.
fn bare(title: &str, body: &Markup, head: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                (head)
                title { (title) " · ralph" }
            }
            body { main class="wrap" { (body) } }
        }
    }
    .into_string()
}

/// Leads on to a page, as a step of this site.
pub(crate) fn moved_page(to: &str) -> String {
    let refresh = html! { meta http-equiv="refresh" content={ "0;url=" (to) }; };
    bare("Welcome", &html! { p { a href=(to) { "Continue" } } }, &refresh)
}

/// Plain: the style sheet needs a token, too.
pub(crate) fn refusal_page(title: &str, hint: &str) -> String {
    bare(title, &html! { h1 { (title) } p { (hint) } }, &html! {})
}

/// A page for what is not there, or failed.
pub(crate) fn message_page(app: &App, access: Access, title: &str, text: &str) -> String {
    let body = html! {
        div class="none" {
            h1 { (title) }
            p class="sub" { (text) }
            p { a class="all" href=(app.link("/")) { "All runs" } }
        }
    };
    render(app, access, &Page { title: title.to_owned(), live: None, body })
}

/// A part of a page that the script replaces when it changes.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// The id of its element.
    pub id: &'static str,
    pub html: String,
}

impl Part {
    pub(crate) fn new(id: &'static str, content: &Markup) -> Part {
        Part { id, html: html! { div id=(id) { (content) } }.into_string() }
    }

    pub(crate) fn markup(&self) -> PreEscaped<&str> {
        PreEscaped(&self.html)
    }
}
