/// A configuration with the origin of each value: the text of `pawl config check FILE`.
package struct ConfigurationReport: Sendable {
    /// The configuration.
    package let configuration: PawlConfiguration
    /// The file, if there was one.
    package let file: String?
    let settings: [Setting]

    /// One key as it was read.
    struct Setting: Sendable {
        let key: ConfigurationKey
        let text: ConfigurationKey.Value
        let origin: Origin

        /// Whether the value differs from the default.
        var isChanged: Bool {
            switch (self.text, self.key.standard) {
            case (.secret(let text), .one(let standard)): text != standard
            default: self.text != self.key.standard
            }
        }
    }

    /// Reads the configuration of a gateway; the parameters are those of
    /// ``PawlConfiguration/load(file:environment:overrides:protocols:)``.
    package init(
        file: String? = nil, network: String? = nil, environment: [String: String] = [:],
        overrides: PawlConfiguration.Overrides = PawlConfiguration.Overrides(), protocols: [ChatProtocol]
    ) throws(ConfigurationError) {
        var content: ConfigurationFile?
        if let file { content = try ConfigurationFile(path: file, network: network) }
        var reading = ConfigurationReading(file: content, environment: environment, overrides: overrides)
        let configuration = PawlConfiguration(&reading, environment: environment, protocols: protocols)
        guard reading.problems.isEmpty else { throw ConfigurationError(problems: reading.problems) }
        self.configuration = configuration
        self.file = file
        self.settings = reading.settings
    }
}

extension ConfigurationReport: Encodable {
    /// A value that is not the default, as scripts read it.
    private struct Change: Encodable {
        var key: String
        /// As YAML; a secret is masked.
        var value: String
        /// The layer of the value, in words.
        var origin: String
        var standard: String
    }

    private enum Member: CodingKey {
        case file, keys, changed
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Member.self)
        try container.encodeIfPresent(self.file, forKey: .file)
        try container.encode(self.settings.count, forKey: .keys)
        let changes = self.changed.map {
            Change(
                key: $0.key.name, value: $0.text.yaml, origin: $0.origin.source, standard: $0.key.standardDescription)
        }
        try container.encode(changes, forKey: .changed)
    }

    /// The settings that are not the default, in the order of the table.
    private var changed: [Setting] {
        ConfigurationKey.table.compactMap { key in
            self.settings.first { $0.key.name == key.name && $0.isChanged }
        }
    }
}

extension ConfigurationReport: CustomStringConvertible {
    package var description: String {
        var count = (file: 0, environment: 0, options: 0)
        for setting in self.settings {
            switch setting.origin {
            case .standard: break
            case .file: count.file += 1
            case .environment: count.environment += 1
            case .option: count.options += 1
            }
        }
        var lines = [
            "\(self.file ?? "The configuration without a file") is good: \(count.file) of \(self.settings.count) "
                + "keys from "
                + "the file, \(count.environment) from the environment, \(count.options) from the command line."
        ]
        let changed = self.changed
        lines.append(changed.isEmpty ? "Every value is the default." : "Not the default:")
        for setting in changed {
            lines.append("  \(setting.key.name): \(setting.text.yaml)")
            lines.append("    from \(setting.origin.source); the default is \(setting.key.standardDescription)")
        }
        return lines.joined(separator: "\n")
    }
}

extension Origin {
    /// The layer of the value, as a noun phrase.
    var source: String {
        switch self {
        case .standard: "the defaults"
        case .file(let path, let line): "\(path) line \(line)"
        case .environment(let variable): "\(variable) in the environment"
        case .option(let option): "\(option) on the command line"
        }
    }
}
