/// The environment variables that mean something to a gateway, and those that look as if they did.
enum ConfigurationVariables {
    /// Refuses variables with our prefix that no key has, so that a slip does not go unnoticed.
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
            // A name like no key is not a slip but somebody else's: scripts around a gateway have variables too.
            guard !meant.isEmpty else { return nil }
            return .init(
                code: .unknownVariable,
                message: "unknown variable \(quoted(name)) in the environment; did you mean "
                    + meant.map { "`\($0)`" }.joined(separator: " or ") + "?")
        }
    }

    /// The part of a name that the prefix does not make alike.
    private static func own(_ name: String) -> String {
        String(name.dropFirst(ConfigurationKey.variablePrefix.count))
    }

    /// Container orchestrators put the address of every service into the environment of every container; for a service
    /// called `pawl` those variables have our prefix, and are nobody's slip.
    private static func isOfOrchestrator(_ name: String) -> Bool {
        name.wholeMatch(
            of: /PAWL_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)/)
            != nil
    }
}
