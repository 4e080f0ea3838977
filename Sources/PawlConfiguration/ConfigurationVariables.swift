/// Finds misspelt environment variables.
enum ConfigurationVariables {
    /// Returns a problem for each variable with our prefix that resembles the variable of a key, but is none.
    ///
    /// - Parameter allowed: the variable that holds the storage key, if one does.
    static func problems(in environment: [String: String], allowed: String?) -> [ConfigurationError.Problem] {
        let known = ConfigurationKey.table.map(\.variable)
        return environment.keys.sorted().compactMap { name in
            guard name.hasPrefix(ConfigurationKey.variablePrefix), name != allowed, !known.contains(name),
                !self.isOfOrchestrator(name)
            else { return nil }
            let longer = known.filter { $0.hasPrefix(name + "_") }
            let nearest = NearestName.of(Self.own(name), among: known.map(Self.own))
            let meant = nearest.map { [ConfigurationKey.variablePrefix + $0] } ?? longer
            // A name that resembles no key is no typing error: scripts around a gateway have variables of their own.
            guard !meant.isEmpty else { return nil }
            return .init(
                code: .unknownVariable,
                message: "unknown variable \(quoted(name)) in the environment; did you mean "
                    + meant.map { "`\($0)`" }.joined(separator: " or ") + "?")
        }
    }

    /// A name without the prefix, which would make all names similar.
    private static func own(_ name: String) -> String {
        String(name.dropFirst(ConfigurationKey.variablePrefix.count))
    }

    /// Whether a container orchestrator sets a variable of this name.
    ///
    /// Orchestrators put the address of every service into the environment of every container. For a service called
    /// `pawl` these variables have our prefix.
    private static func isOfOrchestrator(_ name: String) -> Bool {
        name.wholeMatch(
            of: /PAWL_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)/)
            != nil
    }
}
