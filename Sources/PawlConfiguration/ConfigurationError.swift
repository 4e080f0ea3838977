/// Why a configuration was refused: everything that is wrong with it, not only the first thing.
package struct ConfigurationError: Error, Sendable, Equatable {
    /// What is wrong; never empty.
    package let problems: [Problem]

    /// - Parameter problems: at least one.
    package init(problems: [Problem]) { self.problems = problems }

    init(_ code: Code, _ message: String) { self.init(problems: [Problem(code: code, message: message)]) }

    /// One thing that is wrong, in words for the operator. It never repeats a secret.
    package struct Problem: Sendable, Equatable {
        /// What to switch on.
        package let code: Code
        /// What was found where, what is expected, and an example.
        package let message: String

        package init(code: Code, message: String) { (self.code, self.message) = (code, message) }
    }

    /// The kinds of problems.
    package enum Code: Sendable {
        /// A file is missing or cannot be read.
        case unreadable
        /// A file is larger than a configuration can be.
        case tooLarge
        /// The file is not YAML, or not one map.
        case syntax
        /// A key is written twice.
        case duplicateKey
        /// No such key.
        case unknownKey
        /// No such environment variable.
        case unknownVariable
        /// A list where a text belongs, and the like.
        case wrongType
        /// A value out of range, or not of the form it must have.
        case wrongValue
        /// Values that are good each, but not together.
        case conflict
    }
}

extension ConfigurationError: CustomStringConvertible {
    package var description: String { self.problems.map(\.message).joined(separator: "\n") }
}

/// What is wrong with one value, as the end of the sentence "`key` is `value`, …"; `nil` where the expectation that
/// follows says it all.
struct Mismatch: Error {
    let reason: String?

    init(_ reason: String? = nil) {
        self.reason = reason
    }
}

/// Where a value comes from. The later a layer stands here, the stronger it is.
enum Origin: Sendable, Equatable {
    case standard
    case file(path: String, line: Int)
    case environment(variable: String)
    case option(String)

    /// The place of `key`, as the beginning of a sentence.
    func place(of key: ConfigurationKey) -> String {
        switch self {
        case .standard: "the default of `\(key.name)`"
        case .file(let path, let line): "`\(key.name)` in \(path) line \(line)"
        case .environment(let variable): "`\(variable)` in the environment"
        case .option(let option): "`\(option)` on the command line"
        }
    }

    /// How a good value of `key` is written there.
    func example(of key: ConfigurationKey) -> String {
        switch self {
        case .standard, .file: "\(key.lastName): \(key.example.yaml)"
        case .environment(let variable): "\(variable)=\(key.example.joined)"
        case .option(let option): "\(option) \(key.example.first)"
        }
    }
}

extension ConfigurationError.Problem {
    /// A value that is not what its key expects; `found` is put in place of the value where it is no text.
    static func wrong(
        _ code: ConfigurationError.Code, _ key: ConfigurationKey, at origin: Origin, found: String,
        reason: String? = nil
    ) -> Self {
        let reason = reason.map { ", \($0)" } ?? ""
        return Self(
            code: code,
            message: "\(origin.place(of: key)) is \(found)\(reason); "
                + "expected \(key.kind.expectation), for example `\(origin.example(of: key))`")
    }
}

/// A text as it may stand in a message: in quotes, without control characters, and not endless.
package func quoted(_ text: String) -> String {
    let limit = 100
    var shown = ""
    for scalar in text.unicodeScalars.prefix(limit) {
        shown += scalar.properties.generalCategory == .control ? scalar.escaped(asASCII: true) : String(scalar)
    }
    return text.isEmpty ? "empty" : "`\(shown)\(text.unicodeScalars.count > limit ? "…" : "")`"
}
