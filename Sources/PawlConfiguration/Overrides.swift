extension PawlConfiguration {
    /// The values from the command line, which override all other layers.
    package struct Overrides: Sendable {
        /// One option and its value.
        struct Entry: Sendable {
            let option: String
            let text: ConfigurationKey.Value
        }

        private(set) var entries: [String: Entry] = [:]

        /// Takes the options of `pawl serve`; an empty or `nil` value means that the option is not given.
        package init(
            listen: [String] = [], upstream: String? = nil, policy: String? = nil, data: String? = nil,
            logLevel: String? = nil
        ) {
            if !listen.isEmpty { self.set("listen", to: .many(listen), option: "--listen") }
            if let upstream { self.set("upstream.url", to: .one(upstream), option: "--upstream") }
            if let policy { self.set("policy", to: .one(policy), option: "--policy") }
            if let data { self.set("data", to: .one(data), option: "--data") }
            if let logLevel { self.set("log.level", to: .one(logLevel), option: "--log-level") }
        }

        /// Adds the value of another option.
        ///
        /// - Precondition: the key is known and takes this shape of value.
        package mutating func set(_ name: String, to text: ConfigurationKey.Value, option: String) {
            guard let key = ConfigurationKey.named(name) else { preconditionFailure("no key is called \(name)") }
            if case .many = text {
                precondition(key.kind.isList, "\(name) is no list")
            } else {
                precondition(!key.kind.isList, "\(name) is a list")
            }
            self.entries[name] = Entry(option: option, text: text)
        }
    }
}
