//! The editor's menu of completions.

use reedline::{
    ColumnarMenu, Completer, Editor, Menu, MenuBuilder, MenuEvent, MenuSettings, Painter, Suggestion,
};

/// reedline's menu in columns, which draws nothing when no word fits, as IOS does, instead of a message.
pub struct CompletionMenu(ColumnarMenu);

impl CompletionMenu {
    /// A menu with this name.
    pub fn new(name: &str) -> Self {
        Self(ColumnarMenu::default().with_name(name).with_marker(""))
    }
    fn is_empty(&self) -> bool {
        self.0.get_values().is_empty()
    }
}

impl Menu for CompletionMenu {
    fn menu_required_lines(&self, terminal_columns: u16) -> u16 {
        if self.is_empty() { 0 } else { self.0.menu_required_lines(terminal_columns) }
    }
    fn menu_string(&self, available_lines: u16, use_ansi_coloring: bool) -> String {
        if self.is_empty() { String::new() } else { self.0.menu_string(available_lines, use_ansi_coloring) }
    }
    fn min_rows(&self) -> u16 {
        if self.is_empty() { 0 } else { self.0.min_rows() }
    }

    // Everything else is the inner menu's.
    fn settings(&self) -> &MenuSettings {
        self.0.settings()
    }
    fn is_active(&self) -> bool {
        self.0.is_active()
    }
    fn set_active(&mut self, active: bool) {
        self.0.set_active(active);
    }
    fn clear_input(&mut self) {
        self.0.clear_input();
    }
    fn on_activate(&mut self) {
        self.0.on_activate();
    }
    fn on_deactivate(&mut self) {
        self.0.on_deactivate();
    }
    fn handle_menu_event(&mut self, event: &MenuEvent) {
        self.0.handle_menu_event(event);
    }
    fn menu_event(&mut self, event: MenuEvent) {
        self.0.menu_event(event);
    }
    fn can_quick_complete(&self) -> bool {
        self.0.can_quick_complete()
    }
    fn can_partially_complete(
        &mut self,
        updated: bool,
        editor: &mut Editor,
        completer: &mut dyn Completer,
    ) -> bool {
        self.0.can_partially_complete(updated, editor, completer)
    }
    fn update_values(&mut self, editor: &mut Editor, completer: &mut dyn Completer) {
        self.0.update_values(editor, completer);
    }
    fn reset_position(&mut self) {
        self.0.reset_position();
    }
    fn reload(&mut self, updated: bool, editor: &mut Editor, completer: &mut dyn Completer) {
        self.0.reload(updated, editor, completer);
    }
    fn update_working_details(
        &mut self,
        editor: &mut Editor,
        completer: &mut dyn Completer,
        painter: &Painter,
    ) {
        self.0.update_working_details(editor, completer, painter);
    }
    fn replace_in_buffer(&self, editor: &mut Editor) {
        self.0.replace_in_buffer(editor);
    }
    fn get_values(&self) -> &[Suggestion] {
        self.0.get_values()
    }
    fn results_are_provisional(&self) -> bool {
        self.0.results_are_provisional()
    }
    fn is_awaiting_first_answer(&self) -> bool {
        self.0.is_awaiting_first_answer()
    }
    fn set_cursor_pos(&mut self, pos: (u16, u16)) {
        self.0.set_cursor_pos(pos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_menu_without_words_draws_nothing() {
        let menu = CompletionMenu::new("words");
        assert_eq!(
            (menu.menu_string(10, false), menu.menu_required_lines(80), menu.min_rows()),
            (String::new(), 0, 0)
        );
        assert_eq!(menu.name(), "words");
    }
}
