import Configuration
import Synchronization

/// Reads all layers: command line over environment over file over defaults.
///
/// A wrong value is recorded as a problem and replaced by its default, so that one reading finds all problems. The
/// replacement has no effect, because a reading with problems yields no configuration.
struct ConfigurationReading {
    private let reader: ConfigReader
    private let witness = Witness()
    private let file: ConfigurationFile?
    private let overrides: PawlConfiguration.Overrides

    private(set) var problems: [ConfigurationError.Problem]
    private(set) var settings: [ConfigurationReport.Setting] = []
    private var faulty: Set<String> = []

    init(file: ConfigurationFile?, environment: [String: String], overrides: PawlConfiguration.Overrides) {
        self.file = file
        self.overrides = overrides
        self.problems = file?.problems ?? []
        self.reader = ConfigReader(
            providers: [
                Self.provider("command line", overrides.entries.mapValues(\.text)),
                EnvironmentVariablesProvider(environmentVariables: environment, secretsSpecifier: .all)
                    .prefixKeys(with: "pawl"),
                Self.provider("file", file?.entries.mapValues(\.text) ?? [:]),
                Self.provider(
                    "defaults", Dictionary(uniqueKeysWithValues: ConfigurationKey.table.map { ($0.name, $0.standard) })),
            ],
            accessReporter: self.witness)
    }

    private static func provider(_ name: String, _ texts: [String: ConfigurationKey.Value]) -> any ConfigProvider {
        var values: [AbsoluteConfigKey: ConfigValue] = [:]
        for (key, text) in texts {
            let isSecret = ConfigurationKey.named(key)?.kind.isSecret ?? true
            switch text {
            case .one(let text), .secret(let text):
                values[AbsoluteConfigKey(ConfigKey(key))] = ConfigValue(.string(text), isSecret: isSecret)
            case .many(let texts):
                values[AbsoluteConfigKey(ConfigKey(key))] = ConfigValue(.stringArray(texts), isSecret: isSecret)
            }
        }
        return InMemoryProvider(name: name, values: values)
    }

    /// Records which layer supplied the last value: the last one that was queried.
    private final class Witness: AccessReporter {
        private let layersAsked = Mutex(0)

        var layer: Int { self.layersAsked.withLock { $0 } - 1 }

        func report(_ event: AccessEvent) {
            self.layersAsked.withLock { $0 = event.providerResults.count }
        }
    }

    private func origin(of key: ConfigurationKey, item: Int? = nil) -> Origin {
        switch self.witness.layer {
        case 0: return .option(self.overrides.entries[key.name]?.option ?? key.name)
        case 1: return .environment(variable: key.variable)
        case 2:
            guard let file, let entry = file.entries[key.name] else { return .standard }
            return .file(path: file.path, line: item.map { entry.lines[$0] } ?? entry.line)
        default: return .standard
        }
    }
}

// MARK: - One key

extension ConfigurationReading {
    /// Reads the single value of `key`.
    mutating func one<Value>(_ key: ConfigurationKey, _ parse: (String) throws(Mismatch) -> Value) -> Value {
        let text = self.reader.string(forKey: ConfigKey(key.name), isSecret: key.kind.isSecret) ?? ""
        let origin = self.origin(of: key)
        self.note(key, key.kind.isSecret ? .secret(text) : .one(text), origin)
        if let value = self.understood(key, text, origin, parse) { return value }
        guard case .one(let standard) = key.standard, let value = try? parse(standard) else {
            preconditionFailure("the default of \(key.name) is no good value of it")
        }
        return value
    }

    /// Reads the single value of `key`; `nil` if it is empty.
    mutating func optional<Value>(
        _ key: ConfigurationKey, _ parse: (String) throws(Mismatch) -> Value
    ) -> Value? {
        self.one(key) { (text) throws(Mismatch) -> Value? in text.isEmpty ? nil : try parse(text) }
    }

    /// Reads the list of values of `key`.
    mutating func many<Value>(_ key: ConfigurationKey, _ parse: (String) throws(Mismatch) -> Value) -> [Value] {
        var texts = self.reader.stringArray(forKey: ConfigKey(key.name)) ?? []
        // The provider reads an empty environment variable as a list with one empty item.
        if texts == [""], self.witness.layer == 1 { texts = [] }
        self.note(key, .many(texts), self.origin(of: key))
        return texts.indices.compactMap { self.understood(key, texts[$0], self.origin(of: key, item: $0), parse) }
    }

    /// Reads the value of `key` as one of several choices.
    mutating func choice<Choice: RawRepresentable<String>>(_ key: ConfigurationKey) -> Choice {
        self.choice(key, named: Choice.init(rawValue:))
    }

    /// - Parameter named: finds a choice by its name; nil if none has the name.
    mutating func choice<Choice>(_ key: ConfigurationKey, named: (String) -> Choice?) -> Choice {
        self.one(key) { (text) throws(Mismatch) in
            guard let choice = named(text.lowercased()) else { throw Mismatch() }
            return choice
        }
    }

    /// Reads a truth value.
    mutating func flag(_ key: ConfigurationKey) -> Bool {
        self.one(key) { (text) throws(Mismatch) in
            switch text.lowercased() {
            case "true", "yes", "on", "1": true
            case "false", "no", "off", "0": false
            default: throw Mismatch()
            }
        }
    }

    /// Reads a whole number in the range of the key.
    mutating func whole(_ key: ConfigurationKey) -> Int {
        self.one(key) { (text) throws(Mismatch) in
            guard case .whole(let range) = key.kind, let number = Int(text), range.contains(number) else {
                throw Mismatch()
            }
            return number
        }
    }

    /// Reads a number in the range of the key.
    mutating func number(_ key: ConfigurationKey) -> Double {
        self.one(key) { (text) throws(Mismatch) in
            guard case .number(let range, _) = key.kind, text.allSatisfy({ $0.isNumber || $0 == "." }),
                let number = Double(text), range.contains(number)
            else { throw Mismatch() }
            return number
        }
    }

    /// Reads a number of seconds in the range of the key.
    mutating func seconds(_ key: ConfigurationKey) -> Duration {
        .seconds(self.number(key))
    }

    /// Reads a number of days in the range of the key.
    mutating func days(_ key: ConfigurationKey) -> Duration {
        .seconds(self.number(key) * 86_400)
    }

    private mutating func note(_ key: ConfigurationKey, _ text: ConfigurationKey.Value, _ origin: Origin) {
        self.settings.append(.init(key: key, text: text, origin: origin))
        if origin == .standard, self.file?.faulty.contains(key.name) == true { self.faulty.insert(key.name) }
    }

    private mutating func understood<Value>(
        _ key: ConfigurationKey, _ text: String, _ origin: Origin, _ parse: (String) throws(Mismatch) -> Value
    ) -> Value? {
        do throws(Mismatch) {
            return try parse(text)
        } catch {
            let found = key.kind.isSecret ? "a text that is not shown" : quoted(text)
            self.faulty.insert(key.name)
            self.problems.append(.wrong(.wrongValue, key, at: origin, found: found, reason: error.reason))
            return nil
        }
    }
}

// MARK: - Several keys

extension ConfigurationReading {
    /// Whether all `keys` were read without a problem. Only then can their values be compared.
    func isSound(_ keys: ConfigurationKey...) -> Bool {
        keys.allSatisfy { !self.faulty.contains($0.name) }
    }

    /// Records a conflict between keys.
    mutating func conflict(_ message: String) {
        self.problems.append(.init(code: .conflict, message: message))
    }

    /// Adds problems that were found elsewhere.
    mutating func add(_ problems: [ConfigurationError.Problem]) {
        self.problems += problems
    }

    /// Where the value of `key` was read from, as the beginning of a sentence.
    func place(of key: ConfigurationKey) -> String {
        self.settings.last { $0.key.name == key.name }?.origin.place(of: key) ?? "`\(key.name)`"
    }

    /// Reads the secret of `key`, or of the file that `fileKey` names. Setting both is a conflict.
    mutating func secret(_ key: ConfigurationKey, file fileKey: ConfigurationKey) -> Secret? {
        let written = self.optional(key, Secret.init(configuration:))
        let path = self.optional(fileKey, TextParsers.path)
        guard path != nil else { return written }
        guard written == nil, self.isSound(key) else {
            if written != nil { self.bothSet(key, fileKey) }
            return nil
        }
        return self.secret(in: path, fileKey)
    }

    /// Reads the secret of the file that `fileKey` names.
    mutating func secret(file fileKey: ConfigurationKey) -> Secret? {
        self.secret(in: self.optional(fileKey, TextParsers.path), fileKey)
    }

    private mutating func secret(in path: String?, _ fileKey: ConfigurationKey) -> Secret? {
        guard let path else { return nil }
        let content: ConfigurationBytes
        do throws(ConfigurationBytes.Failure) {
            content = try ConfigurationBytes(path: path, limit: ConfigurationBytes.passwordLimit)
        } catch {
            let (code, reason): (ConfigurationError.Code, String) =
                switch error {
                case .unreadable(let reason): (.unreadable, "which cannot be read: \(reason)")
                case .tooLarge: (.tooLarge, "a file too large for a password")
                }
            let place = self.place(of: fileKey)
            self.problems.append(.init(code: code, message: "\(place) is \(quoted(path)), \(reason)"))
            return nil
        }
        let text = String(decoding: content.bytes, as: UTF8.self)
        do throws(Mismatch) {
            return try Secret(configuration: String(text.prefix { !$0.isNewline }), rest: text)
        } catch {
            let place = self.place(of: fileKey)
            self.problems.append(
                .init(
                    code: .wrongValue,
                    message: "\(place) is \(quoted(path)), whose content is not "
                        + "\(ConfigurationKey.Kind.secret.expectation)"))
            return nil
        }
    }

    /// Records that two mutually exclusive keys are both set.
    mutating func bothSet(_ a: ConfigurationKey, _ b: ConfigurationKey) {
        self.conflict("\(self.place(of: a)) and \(self.place(of: b)) exclude each other; keep one")
    }
}
