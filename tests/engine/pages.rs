//! The links of the repository's pages lead somewhere, for those who read them as files.
//!
//! The same pages are documentation of the runtime, whose links rustdoc checks.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Every page below a folder, but for other people's and what is built.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    for entry in entries {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !name.starts_with('.') && name != "target" && name != "data" {
            pages(&path, found);
        } else if kind.is_file() && name.ends_with(".md") {
            found.push(path);
        }
    }
}

/// Where the links of a page lead: `[text](target)` and `[name]: target`, but for those in code.
fn targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let links = line.split("](").skip(1);
        found.extend(links.filter_map(|link| link.split_once(')').map(|(target, _)| target)));
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        found.extend(definition.map(|(_, target)| target));
    }
    found
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    heading
        .trim_matches(['#', ' '])
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn every_link_of_a_page_leads_to_a_file_or_a_heading() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    pages(workspace, &mut found);
    let mut count = 0;
    for page in found {
        let text = fs::read_to_string(&page).unwrap();
        let named = text
            .split("][")
            .skip(1)
            .filter_map(|rest| rest.split_once(']'));
        for (name, _) in named {
            let definition = format!("\n[{name}]: ");
            assert!(
                text.contains(&definition),
                "{page:?}: [{name}] leads nowhere"
            );
        }
        for target in targets(&text) {
            if target.starts_with("https://") {
                continue;
            }
            count += 1;
            if let Some(part) = target.strip_prefix('#') {
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(
                    headings.any(|heading| anchor(heading) == part),
                    "{page:?}: there is no heading for {target}"
                );
            } else {
                let file = page.parent().unwrap().join(target);
                assert!(file.is_file(), "{page:?}: {target} leads nowhere");
            }
        }
    }
    assert!(count > 10, "{count} links found: has their form changed?");
}
