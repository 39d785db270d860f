//! Text that is typed into the footer: a search through the run, or a filter of the list.

use super::{Effect, Model, Screen, Tab};
use crate::input::Key;
use crate::text_field::TextField;

/// A search through the whole run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    pub field: TextField,
    pub is_typing: bool,
    /// Ids of items, oldest first. Lines of the page on other tabs.
    pub hits: Vec<u64>,
    pub at: usize,
    /// The item of the hit that is shown.
    pub shown: Option<u64>,
    /// Not everything was searched yet.
    pub is_running: bool,
}

impl Search {
    pub fn result_text(&self) -> String {
        match (self.hits.len(), self.is_running) {
            (0, true) => "searching".to_owned(),
            (0, false) => "not found".to_owned(),
            (count, running) => {
                format!("{} of {count}{}", self.at + 1, if running { " so far" } else { "" })
            }
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub field: TextField,
    pub is_typing: bool,
}

impl Model {
    pub(super) fn open_filter(&mut self) {
        self.screen = Screen::Fleet;
        let field = self.fleet.filter.take().map(|filter| filter.field).unwrap_or_default();
        self.fleet.filter = Some(Filter { field, is_typing: true });
    }

    pub(super) fn type_filter(&mut self, key: Key) {
        let Some(filter) = &mut self.fleet.filter else { return };
        match key {
            Key::Esc => self.fleet.filter = None,
            Key::Enter if filter.field.is_blank() => self.fleet.filter = None,
            Key::Enter | Key::Up | Key::Down => filter.is_typing = false,
            Key::Ctrl('j') => {}
            _ => {
                filter.field.press(key);
            }
        }
    }

    pub(super) fn open_search(&mut self) {
        if self.screen == Screen::Fleet && !self.layout.is_wide {
            self.screen = Screen::Run;
        }
        self.search = Some(Search { is_typing: true, ..Search::default() });
    }

    pub(super) fn type_search(&mut self, key: Key) -> Vec<Effect> {
        let Some(search) = &mut self.search else { return Vec::new() };
        match key {
            Key::Esc => self.search = None,
            Key::Enter if search.field.is_blank() => self.search = None,
            Key::Enter => {
                search.is_typing = false;
                search.is_running = true;
                if self.tab == Tab::Activity {
                    return vec![Effect::Search(search.field.text().to_owned())];
                }
            }
            Key::Ctrl('j') => {}
            _ => {
                search.field.press(key);
            }
        }
        Vec::new()
    }

    /// The hits of a search through a page, which the next frame finds.
    pub(crate) fn take_page_hits(&mut self) -> Option<Vec<u64>> {
        let is_running = self.search.as_ref().is_some_and(|search| search.is_running);
        (is_running && self.tab != Tab::Activity).then(|| std::mem::take(&mut self.layout.matches))
    }

    /// Of the activity, shows the last hit first: what happened recently matters most.
    pub(super) fn found(&mut self, hits: Vec<u64>, is_running: bool) -> Vec<Effect> {
        let Some(search) = &mut self.search else { return Vec::new() };
        search.hits = hits;
        search.is_running = is_running;
        if is_running || search.hits.is_empty() {
            return Vec::new();
        }
        search.at = if self.tab == Tab::Activity { search.hits.len() - 1 } else { 0 };
        self.show_hit()
    }

    pub(super) fn show_hit(&mut self) -> Vec<Effect> {
        let Some(search) = &mut self.search else { return Vec::new() };
        let Some(hit) = search.hits.get(search.at).copied() else { return Vec::new() };
        search.shown = Some(hit);
        if self.tab != Tab::Activity {
            self.show_line(usize::try_from(hit).unwrap_or(usize::MAX));
            return Vec::new();
        }
        self.pages.activity.top = Some((hit, 0));
        vec![Effect::GoToItem(hit)]
    }

    pub(super) fn step_hit(&mut self, forward: bool) -> Vec<Effect> {
        let Some(search) = &mut self.search else { return Vec::new() };
        let count = search.hits.len();
        if count == 0 {
            return Vec::new();
        }
        search.at = (search.at + if forward { 1 } else { count - 1 }) % count;
        self.show_hit()
    }

    pub(super) fn paste(&mut self, text: &str) {
        if let Some(dialog) = &mut self.dialog {
            if let Some(field) = dialog.field() {
                field.insert(text);
            }
            return;
        }
        let line = text.replace('\n', " ");
        if let Some(search) = self.search.as_mut().filter(|search| search.is_typing) {
            search.field.insert(&line);
        } else if let Some(filter) = self.fleet.filter.as_mut().filter(|filter| filter.is_typing) {
            filter.field.insert(&line);
        } else {
            self.say("Press i to tell the agent something, then paste.");
        }
    }
}
