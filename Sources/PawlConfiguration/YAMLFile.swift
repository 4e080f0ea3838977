import Yams

/// Reads YAML files into trees of nodes.
enum YAMLFile {
    /// Returns the tree of a file, or nil if the file is empty.
    ///
    /// - Parameter name: the kind of file, for error messages: `configuration`.
    static func root(path: String, called name: String) throws(ConfigurationError) -> Node? {
        let content: ConfigurationBytes
        do throws(ConfigurationBytes.Failure) {
            content = try ConfigurationBytes(path: path, limit: ConfigurationBytes.configurationLimit)
        } catch {
            switch error {
            case .unreadable(let reason):
                throw ConfigurationError(.unreadable, "the \(name) \(path) cannot be read: \(reason)")
            case .tooLarge:
                throw ConfigurationError(
                    .tooLarge, "\(path) is larger than 1 MiB, the limit of a \(name); is it the right file?")
            }
        }
        guard let yaml = String(validating: content.bytes, as: UTF8.self) else {
            throw ConfigurationError(.syntax, "\(path) is not UTF-8 text; is it the right file?")
        }
        do {
            return try Parser(yaml: yaml, encoding: .utf8).singleRoot()
        } catch {
            throw ConfigurationError(problems: [Self.problem(error, path: path)])
        }
    }

    /// Whether a node is empty or null.
    static func isNull(_ node: Node) -> Bool {
        guard let scalar = node.scalar, scalar.style == .plain else { return false }
        return ["", "~", "null", "Null", "NULL"].contains(scalar.string)
    }

    /// Turns an error of the parser into a problem, without the lines that the parser quotes: one may hold a
    /// password.
    private static func problem(_ error: any Error, path: String) -> ConfigurationError.Problem {
        func syntax(_ line: Int, _ column: Int?, _ what: String) -> ConfigurationError.Problem {
            let column = column.map { " column \($0)" } ?? ""
            return .init(code: .syntax, message: "\(path) line \(line)\(column) is not YAML: \(what)")
        }
        switch error as? YamlError {
        case .scanner(let context, let problem, let mark, _), .parser(let context, let problem, let mark, _):
            // An unclosed construct may begin on an earlier line, so the message names that line.
            let begin = context.map { $0.mark.line == mark.line ? $0.text : "\($0.text) of line \($0.mark.line)" }
            return syntax(mark.line, mark.column, [begin, problem].compactMap(\.self).joined(separator: ", "))
        case .composer(let context, let problem, let mark, _):
            return syntax(mark.line, mark.column, [context?.text, problem].compactMap(\.self).joined(separator: ", "))
        case .reader(let problem, let offset, _, let yaml):
            let line = yaml.prefix(offset ?? 0).count { $0.isNewline } + 1
            return syntax(line, nil, problem)
        case .duplicatedKeysInMapping(let duplicates, let context):
            let names = duplicates.map(quoted).joined(separator: " and ")
            return .init(
                code: .duplicateKey,
                message: "\(names) is written more than once in \(path), for the first time in line "
                    + "\(context.mark.line); keep one")
        default:
            return .init(code: .syntax, message: "\(path) is not YAML")
        }
    }
}
