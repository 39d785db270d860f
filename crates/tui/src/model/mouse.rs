//! Clicks and the wheel.

use ratatui_core::layout::Position;

use super::{Effect, Model, Selection};
use crate::data::Data;
use crate::input::MouseAction;
use crate::view::Target;

impl Model {
    pub(super) fn mouse(
        &mut self,
        action: MouseAction,
        at: Position,
        data: &Data<'_>,
    ) -> Vec<Effect> {
        const DOUBLE_CLICK_MS: i64 = 400;
        if self.dialog.is_some() {
            let is_control = |target: &Target| {
                matches!(target, Target::Key(_) | Target::Delivery(_) | Target::Field(_))
            };
            let target = self.layout.hit(at, is_control).cloned();
            return self.mouse_in_dialog(action, target, data);
        }
        let is_pane = |target: &Target| matches!(target, Target::Fleet | Target::Detail);
        if action != MouseAction::Press {
            let pane = self.layout.hit(at, is_pane).cloned();
            return self.wheel(action == MouseAction::WheelUp, pane.as_ref(), data);
        }
        let Some(target) = self.layout.hit(at, |target| !is_pane(target)).cloned() else {
            return Vec::new();
        };
        self.note = None;
        let click = (data.now_ms, target.clone());
        let last = self.last_click.replace(click);
        let is_double =
            last.is_some_and(|(ms, last)| last == target && data.now_ms - ms < DOUBLE_CLICK_MS);
        match target {
            Target::Run(id) => {
                self.fleet.selection = Some(Selection::Run(id));
                if is_double {
                    return self.open(data);
                }
            }
            Target::OlderRuns => {
                self.fleet.selection = Some(Selection::Older);
                if is_double {
                    return self.open(data);
                }
            }
            Target::Tab(tab) => self.show_tab(tab),
            Target::Command(command) => return self.command(command, data),
            Target::Story(at) => self.pages.stories.choose(at),
            Target::File(at) => self.pages.diff.choose(at),
            Target::Check(at) => self.pages.checks.choose(at),
            Target::Fleet
            | Target::Detail
            | Target::Key(_)
            | Target::Delivery(_)
            | Target::Field(_) => {}
        }
        Vec::new()
    }
}
