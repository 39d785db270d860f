//! Paths relative to the project.

use std::path::Path;

#[derive(Debug, Default)]
pub(crate) struct ProjectPaths {
    /// `PWD`, which may contain links. Some agents use it in paths.
    pub(super) shell_directory: Option<String>,
    /// The directory of the project, and its name through links.
    roots: Vec<String>,
}

impl ProjectPaths {
    pub(crate) fn set_project(&mut self, directory: &str) {
        if self.roots.first().is_some_and(|root| root == directory) {
            return;
        }
        let is_project = |path: &&String| {
            Path::new(path).canonicalize().is_ok_and(|path| path == Path::new(directory))
        };
        self.roots = vec![directory.to_owned()];
        self.roots.extend(self.shell_directory.as_ref().filter(is_project).cloned());
    }

    /// Shortens a path, or each of several after commas. Commands stay: they may run elsewhere.
    pub(crate) fn relative(&self, summary: &str) -> String {
        let parts: Vec<&str> = summary.split(", ").map(|part| self.relative_path(part)).collect();
        parts.join(", ")
    }

    fn relative_path<'p>(&self, path: &'p str) -> &'p str {
        let rest = self.roots.iter().find_map(|root| path.strip_prefix(root.as_str()));
        match rest {
            Some("" | "/") => ".",
            Some(rest) => rest.strip_prefix('/').unwrap_or(path),
            None => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_project_are_relative() {
        let mut paths = ProjectPaths::default();
        assert_eq!(paths.relative("/p/a"), "/p/a");
        paths.set_project("/home/me/p");
        for (summary, expected) in [
            ("/home/me/p/src/a.rs", "src/a.rs"),
            ("/home/me/p/a, /home/me/p/b, /tmp/c", "a, b, /tmp/c"),
            ("/home/me/p", "."),
            ("/home/me/pq/a.rs", "/home/me/pq/a.rs"),
            ("/path/to/file.go", "/path/to/file.go"),
            ("cat /home/me/p/a", "cat /home/me/p/a"),
            ("src/a.rs", "src/a.rs"),
            ("", ""),
        ] {
            assert_eq!(paths.relative(summary), expected);
        }
    }

    #[test]
    fn paths_through_link_are_relative() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap().join("real");
        let link = dir.path().join("link");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let link = link.to_str().unwrap();
        let mut paths =
            ProjectPaths { shell_directory: Some(link.to_owned()), ..ProjectPaths::default() };
        paths.set_project(real.to_str().unwrap());
        assert_eq!(paths.relative(&format!("{link}/a.rs")), "a.rs");
        paths.set_project("/elsewhere");
        assert_eq!(paths.relative(&format!("{link}/a.rs")), format!("{link}/a.rs"));
    }
}
