import Protection

extension ConfigurationKey {
    /// The policies under which texts of commands are treated by a choice.
    static let commandPolicies = Policy.allCases.filter(\.demandsProtection)

    /// The key of a text of IRC commands under a policy.
    static func command(_ text: CommandText, _ policy: Policy) -> ConfigurationKey {
        ConfigurationKey(
            "commands.\(policy.name).\(text.rawValue)", choice(CommandTextTreatment.self),
            standard: .one(text.standard.rawValue), example: .one(CommandTextTreatment.pass.rawValue),
            reason: policy.demandsDevices ? requiredReason(of: text) : hostedReason(of: text)
        ) { one($0.commands[text, under: policy].rawValue) }
    }

    private static func hostedReason(of text: CommandText) -> String {
        switch text {
        case .topic:
            "For IRC: what happens to topics under `hosted`. `refuse`: the command is not sent, and the person reads "
                + "why; `strip`: it is sent without the text, which clears the topic; `pass`: the server reads the "
                + "topic and shows it to people outside. The default is refuse: no envelope carries a topic yet. "
                + "Without a text the command always passes."
        case .kick:
            "Reasons of KICK, REMOVE, SAKICK and SAPART, in the same way. The default is strip: the command matters "
                + "more than its reason."
        case .part: "Reasons of PART and CYCLE. The default is strip: people must be able to leave a room."
        case .quit:
            "Reasons of QUIT and SAQUIT. The default is strip. With `refuse` a person who quits with a reason stays "
                + "connected until the client closes the connection."
        case .away:
            "Texts of AWAY. The default is strip, which sends `AWAY :Away`: others see that the person is away, and "
                + "not why."
        case .wallops:
            "Texts of WALLOPS and GLOBOPS. The default is refuse: they are nothing without their text. `strip` sends "
                + "`(text removed)`."
        }
    }

    private static func requiredReason(of text: CommandText) -> String {
        switch text {
        case .topic:
            "The same under `required`, and in rooms that are protected end-to-end. The defaults are those of "
                + "`hosted`."
        case .kick, .part, .quit, .away, .wallops: "As under `hosted`."
        }
    }

    static let commands = commandPolicies.flatMap { policy in CommandText.allCases.map { command($0, policy) } }
}
