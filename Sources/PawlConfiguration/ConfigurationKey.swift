/// A configuration key: one row of ``table``.
///
/// The known names, the defaults, the expectations in error messages and the listing all come from this table.
package struct ConfigurationKey: Sendable {
    /// The dotted name, as in `upstream.url`; in YAML the dots are nested maps.
    package let name: String
    /// The kind of value.
    package let kind: Kind
    /// The default value.
    package let standard: Value
    /// What an empty default means, if that depends on other keys.
    package let derived: String?
    /// The purpose of the key, and the reason for its default.
    package let reason: String
    /// A valid value.
    package let example: Value
    /// When a change takes effect.
    package let effect: Effect
    /// The value in a configuration, or `nil` if another key holds it.
    let current: @Sendable (PawlConfiguration) -> Value?

    init(
        _ name: String, _ kind: Kind, standard: Value, derived: String? = nil, example: Value? = nil,
        effect: Effect = .reload, reason: String, current: @escaping @Sendable (PawlConfiguration) -> Value?
    ) {
        self.name = name
        self.kind = kind
        self.standard = standard
        self.derived = derived
        self.reason = reason
        self.example = example ?? standard
        self.effect = effect
        self.current = current
    }

    /// When a change takes effect.
    package enum Effect: Sendable {
        /// At the next `pawl config reload`; open connections keep the old value.
        case reload
        /// Only when the gateway starts.
        case restart
    }

    /// The last part of the name.
    var lastName: String { self.name.split(separator: ".").last.map(String.init) ?? self.name }
    /// The environment variable that overrides the key.
    package var variable: String {
        Self.variablePrefix + self.name.uppercased().map { $0 == "." ? "_" : String($0) }.joined()
    }
    /// The prefix of all variables.
    package static let variablePrefix = "PAWL_"
    /// The default in words.
    package var standardDescription: String {
        if let derived { return derived }
        return self.standard == .one("") ? "unset" : self.standard.yaml
    }
}

extension ConfigurationKey {
    /// An unparsed value: one text, or a list of texts.
    package enum Value: Sendable, Hashable {
        case one(String)
        case many([String])
        /// A text that is never shown.
        case secret(String)

        /// The value as YAML; a secret is masked.
        package var yaml: String {
            switch self {
            case .one(let text): Self.yaml(text)
            case .many(let texts): "[" + texts.map(Self.yaml).joined(separator: ", ") + "]"
            case .secret(let text): text.isEmpty ? Self.yaml(text) : Secret.mask
            }
        }

        /// The value as written in an environment variable; a secret is masked.
        var joined: String {
            switch self {
            case .one(let text): text
            case .many(let texts): texts.joined(separator: ",")
            case .secret: Secret.mask
            }
        }

        /// The value as written after an option; the first of a list, because the option is repeated.
        var first: String {
            guard case .many(let texts) = self else { return self.joined }
            return texts.first ?? ""
        }

        /// Bare if YAML reads it back as the same text, in double quotes otherwise.
        private static func yaml(_ text: String) -> String {
            let begins = text.first.map { $0.isLetter || $0.isNumber || $0 == "/" } ?? false
            let isBare =
                begins && !text.hasSuffix(":") && !text.contains(": ") && !text.contains(" #")
                && !text.contains { ",[]{}\"'`".contains($0) || $0.isNewline }
            guard !isBare else { return text }
            let escaped = text.unicodeScalars.map { scalar in
                switch scalar {
                case "\"", "\\": "\\\(scalar)"
                case "\n": "\\n"
                default: String(scalar)
                }
            }
            return "\"" + escaped.joined() + "\""
        }
    }

    /// The kinds of values, and the form in which an operator writes each.
    package enum Kind: Sendable {
        case listeningURLs
        case url
        case hook
        case blocks
        case services
        case choice([String])
        case flag
        case whole(ClosedRange<Int>)
        case number(ClosedRange<Double>, unit: String)
        case path
        case word
        case words
        case host
        case variable
        case database
        case address
        case sentence
        case secret

        /// Whether the value is a list.
        package var isList: Bool {
            switch self {
            case .listeningURLs, .blocks, .services, .words: true
            default: false
            }
        }

        /// Whether the value must not be shown.
        package var isSecret: Bool {
            if case .secret = self { true } else { false }
        }

        /// The expected form, as the end of the sentence "expected …".
        var expectation: String {
            switch self {
            case .listeningURLs:
                "a list of URLs `irc://HOST:PORT`, `ircs://HOST:PORT` or `irc+insecure://HOST:PORT`, or of such URLs with "
                    + "ws or http"
            case .url:
                "a URL `irc://HOST:PORT`, `ircs://HOST:PORT` or `irc+insecure://HOST:PORT`, or such a URL with http"
            case .hook: "a URL `https://HOST/PATH`, or `http://HOST:PORT/PATH` on loopback"
            case .blocks: "a list of address blocks `ADDRESS/PREFIX`"
            case .services: "a list of patterns `NICKMASK server=MASK` or `NICKMASK host=MASK`"
            case .choice(let names): "one of " + names.joined(separator: ", ")
            case .flag: "true or false"
            case .whole(let range): "a whole number from \(range.lowerBound) to \(range.upperBound)"
            case .number(let range, let unit):
                "a number of \(unit) from \(range.lowerBound.plain) to "
                    + "\(range.upperBound.plain)"
            case .path: "a path"
            case .word: "a name of at most 253 bytes without spaces"
            case .words: "a list of names, each of at most 253 bytes without spaces"
            case .host: "a host name"
            case .variable: "the name of an environment variable"
            case .database: "a URI `postgresql://USER@HOST/DATABASE` without a password"
            case .address: "a loopback address `HOST:PORT`, or an empty text for none"
            case .sentence:
                "one line of at most \(PawlConfiguration.Refusal.Text.limit) bytes in which "
                    + "`{target}` may stand"
            case .secret: "a password of at most 200 bytes without spaces that does not begin with `:`"
            }
        }
    }
}

extension Double {
    /// The number as text, without a fraction if it is whole.
    var plain: String { Int(exactly: self).map(String.init) ?? String(self) }
}

extension Duration {
    /// The duration in seconds.
    var seconds: Double { self / .seconds(1) }
}
