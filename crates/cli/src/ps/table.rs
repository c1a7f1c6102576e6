//! Tables of text.

/// Aligns rows in columns. Those of `words` begin in line; the others, numbers, end in line.
pub fn table<const N: usize>(rows: &[[String; N]], words: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, entry) in row.iter().enumerate() {
            let width = widths[column];
            let padded = match words.contains(&column) {
                true => format!("{entry:<width$}  "),
                false => format!("{entry:>width$}  "),
            };
            line.push_str(&padded);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
