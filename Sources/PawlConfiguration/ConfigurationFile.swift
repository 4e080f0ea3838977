import Yams

/// A YAML file as a flat table of known keys, with the problems of its structure.
///
/// Only known names are followed, so repeated anchors are never expanded.
struct ConfigurationFile {
    /// The value of one key in the file.
    struct Entry {
        let text: ConfigurationKey.Value
        let line: Int
        /// The line of each item of a list.
        var lines: [Int] = []
    }

    let path: String
    private(set) var entries: [String: Entry] = [:]
    /// Keys whose value has the wrong type. Only ``problems`` reports them.
    private(set) var faulty: Set<String> = []
    private(set) var problems: [ConfigurationError.Problem] = []

    /// - Parameter network: of a file with several networks, the one whose keys are read over the common ones; nil if
    ///   there are no networks.
    init(path: String, network: String? = nil) throws(ConfigurationError) {
        self.path = path
        switch try YAMLFile.root(path: path, called: "configuration") {
        case .none: break
        case .mapping(let mapping)?: self.walk(mapping, below: "", network: network)
        case .some(let node) where Self.isNull(node): break
        case .some(let node):
            throw ConfigurationError(
                .syntax,
                "\(path) holds \(Self.shape(of: node)) at its top; expected keys, for example `policy: "
                    + "observe`")
        }
    }
}

// MARK: - The tree

extension ConfigurationFile {
    private mutating func walk(_ mapping: Node.Mapping, below prefix: String, network: String? = nil) {
        var seen: Set<String> = []
        var own: Node.Mapping?
        for (keyNode, value) in mapping {
            let line = keyNode.mark?.line ?? 1
            guard let key = keyNode.scalar else {
                self.report(
                    .syntax,
                    "a key in \(self.path) line \(line) is \(Self.words(for: keyNode)); "
                        + "expected a name")
                continue
            }
            let name = prefix + key.string
            guard seen.insert(name).inserted else {
                self.report(
                    .duplicateKey,
                    "`\(name)` is written twice in \(self.path), for the second time in "
                        + "line \(line)")
                continue
            }
            if let network, name == SidecarNetworks.key {
                let found = value.mapping?.first { $0.key.scalar?.string == network }
                if let keys = found?.value.mapping { own = keys }
                continue
            }
            // A key with a dot in it is not the nested key of the same name.
            if !key.string.contains("."), ConfigurationKey.branches.contains(name) {
                self.section(name, value, line)
            } else if !key.string.contains("."), let known = ConfigurationKey.named(name) {
                self.leaf(known, value, line)
            } else {
                self.unknown(name, line)
            }
        }
        guard let network, let own else { return }
        // From here on keys of the network replace the common ones.
        let common = self.entries["data"]
        self.entries["data"] = nil
        self.walk(own, below: "")
        // The keys of each network are in a directory of their own.
        if self.entries["data"] == nil, let common, case .one(let directory) = common.text {
            let text = SidecarNetworks.directory(of: network, in: directory)
            self.entries["data"] = Entry(text: .one(text), line: common.line)
        }
    }

    private mutating func section(_ name: String, _ value: Node, _ line: Int) {
        if let mapping = value.mapping {
            self.walk(mapping, below: name + ".")
        } else if !Self.isNull(value) {
            let child = ConfigurationKey.table.first { $0.name.hasPrefix(name + ".") && !$0.kind.isSecret }
            let example = child.map { "`\($0.name.dropFirst(name.count + 1)): \($0.example.yaml)`" } ?? "its keys"
            self.report(
                .wrongType,
                "`\(name)` in \(self.path) line \(line) is \(Self.shape(of: value)); "
                    + "expected keys indented below it, for example \(example)")
        }
    }

    private mutating func unknown(_ name: String, _ line: Int) {
        let place = "unknown key \(quoted(name)) in \(self.path) line \(line)"
        if name.contains("."), let key = ConfigurationKey.named(name) {
            let parts = key.name.split(separator: ".").map { "`\($0):`" }
            self.report(
                .unknownKey,
                "\(place); write it as keys below each other: "
                    + "\(parts.joined(separator: ", then "))")
            return
        }
        let names = ConfigurationKey.table.map(\.name) + ConfigurationKey.branches.sorted()
        let hint = NearestName.of(name, among: names).map { "did you mean `\($0)`?" }
        self.report(
            .unknownKey, "\(place); \(hint ?? "no key has a name like it, see config/pawl.yaml for all of them")")
    }

    private mutating func leaf(_ key: ConfigurationKey, _ value: Node, _ line: Int) {
        switch value {
        case .scalar(let scalar) where !key.kind.isList && !Self.isNull(value):
            self.entries[key.name] = Entry(text: .one(scalar.string), line: line)
        case .sequence(let sequence) where key.kind.isList:
            var texts: [String] = []
            var lines: [Int] = []
            for item in sequence {
                // An item that comes from an anchor has the line of the anchor, above the key.
                let itemLine = max(line, item.mark?.line ?? line)
                guard let scalar = item.scalar, !Self.isNull(item) else {
                    self.wrongType(key, "a list with \(Self.words(for: item)) in it", itemLine)
                    return
                }
                texts.append(scalar.string)
                lines.append(itemLine)
            }
            self.entries[key.name] = Entry(text: .many(texts), line: line, lines: lines)
        default:
            self.wrongType(key, key.kind.isSecret ? Self.shape(of: value) : Self.words(for: value), line)
        }
    }

    private mutating func wrongType(_ key: ConfigurationKey, _ found: String, _ line: Int) {
        self.faulty.insert(key.name)
        self.problems.append(.wrong(.wrongType, key, at: .file(path: self.path, line: line), found: found))
    }

    private mutating func report(_ code: ConfigurationError.Code, _ message: String) {
        self.problems.append(.init(code: code, message: message))
    }

    private static func isNull(_ node: Node) -> Bool { YAMLFile.isNull(node) }

    private static func words(for node: Node) -> String {
        switch node {
        case .scalar(let scalar) where !Self.isNull(node): quoted(scalar.string)
        default: Self.shape(of: node)
        }
    }

    /// The type of a node, without its text: a text may be a password whose key lacks the colon.
    private static func shape(of node: Node) -> String {
        switch node {
        case .mapping: "a map"
        case .sequence: "a list"
        case .scalar: Self.isNull(node) ? "without a value" : "a text"
        case .alias: "an alias"
        }
    }
}
