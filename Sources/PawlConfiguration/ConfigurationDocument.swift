extension ConfigurationKey {
    /// The text of `config/pawl.yaml`: every key with its default and its reason.
    package static func document() -> String {
        var lines = [
            "# Every key of Pawl with its default. A file needs only the keys that it changes.",
            "#",
            "# Environment variables override the file (`PAWL_UPSTREAM_URL` for `upstream.url`, lists with commas), "
                + "and the",
            "# command line overrides both. `pawl config check FILE` reports errors, or the values that differ from "
                + "the default;",
            "# `pawl config reload` applies a changed file without dropping a connection.",
        ]
        var section: [Substring] = []
        for key in Self.table {
            let path = key.name.split(separator: ".")
            let shared = zip(section, path.dropLast()).prefix { $0 == $1 }.count
            lines.append("")
            for depth in shared..<path.count - 1 {
                lines.append(Self.indent(depth) + path[depth] + ":")
            }
            section = Array(path.dropLast())
            let indent = Self.indent(section.count)
            lines += Self.wrapped(key.reason, prefix: indent + "# ")
            lines += Self.wrapped(key.footnote, prefix: indent + "# ")
            lines.append("\(indent)\(key.lastName): \(key.standard.yaml)")
        }
        return lines.joined(separator: "\n") + "\n"
    }

    private var footnote: String {
        let standard = if case .sentence = self.kind { "as below" } else { self.standardDescription }
        let effect = self.effect == .restart ? " A change needs a restart." : ""
        let example = self.standard == self.example ? "" : " For example `\(self.example.yaml)`."
        return "Default: \(standard). Expects \(self.kind.expectation).\(effect)\(example)"
    }

    private static func indent(_ depth: Int) -> String {
        String(repeating: "  ", count: depth)
    }

    private static func wrapped(_ text: String, prefix: String, width: Int = 118) -> [String] {
        var lines: [String] = []
        var line = prefix
        for word in text.split(separator: " ") {
            if line.count > prefix.count, line.count + 1 + word.count > width {
                lines.append(line)
                line = prefix
            }
            line += (line.count > prefix.count ? " " : "") + word
        }
        return lines + [line]
    }
}
