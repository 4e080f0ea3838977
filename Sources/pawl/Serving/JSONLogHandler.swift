// The log as lines of JSON, for programs that collect logs (`log.format: json`).

import Foundation
import Glibc
import Logging
import Protection

/// One line of the log.
struct LogLine: Codable, Equatable {
    /// In UTC, with milliseconds.
    var time: String
    var level: String
    var message: String
    /// The module that reports; nil for the program itself.
    var source: String?
    /// The code of a failure that ends the program.
    var code: String?
    /// The exit code of the same.
    var exit: Int32?
    /// What belongs to the message, by name.
    var fields: [String: String]?

    init(
        _ message: String, level: Logger.Level, source: String? = nil, code: String? = nil, exit: Int32? = nil,
        fields: [String: String] = [:], at milliseconds: Int64 = SystemClock.now().wall
    ) {
        time = Table.date(milliseconds).formatted(Date.ISO8601FormatStyle(includingFractionalSeconds: true))
        (self.level, self.message, self.source) = (level.rawValue, message, source)
        (self.code, self.exit) = (code, exit)
        self.fields = fields.isEmpty ? nil : fields
    }

    /// The line without its end. Names that others chose cannot end it, and cannot command a terminal.
    var text: String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and numbers can always be encoded.
        return (try? encoder.encode(self)).map { Printable.line(String(decoding: $0, as: UTF8.self)) } ?? "{}"
    }
}

/// Writes each event of the log as one object.
struct JSONLogHandler: LogHandler {
    var logLevel: Logger.Level
    var metadata: Logger.Metadata = [:]
    var metadataProvider: Logger.MetadataProvider?
    private let write: @Sendable (String) -> Void

    /// - Parameter write: takes each line without its end.
    init(level: Logger.Level, write: @escaping @Sendable (String) -> Void = Self.writeToStandardError) {
        (logLevel, self.write) = (level, write)
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        var fields = metadata
        fields.merge(metadataProvider?.get() ?? [:]) { $1 }
        fields.merge(event.metadata ?? [:]) { $1 }
        var texts = fields.mapValues { "\($0)" }
        if let error = event.error { texts["error"] = ErrorWords.text(error) }
        let source = event.source == "pawl" ? nil : event.source
        write(LogLine("\(event.message)", level: event.level, source: source, fields: texts).text)
    }

    /// Writes a line with one call, so that lines of several threads do not mix.
    static func writeToStandardError(_ line: String) {
        let bytes = Array("\(line)\n".utf8)
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { Glibc.write(STDERR_FILENO, $0.baseAddress, $0.count) }
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return }
            sent += count
        }
    }
}
