import Foundation
import TestKit

/// A screen that nobody sees (Xvfb), for clients with windows.
package final class VirtualScreen {
    private static let program = "/usr/bin/Xvfb"
    private let process: ChildProcess

    /// The name under which programs find it, for `DISPLAY`.
    package let display: String

    package init(timeout: Duration = Deadline.usual) throws {
        try Self.require([Self.program])
        // It takes the first free number, and prints it.
        let process = try ChildProcess(
            Self.program, ["-displayfd", "1", "-screen", "0", "1024x768x24", "-nolisten", "tcp"])
        self.process = process
        var number = ""
        try eventually("a screen", timeout: timeout, every: .milliseconds(50)) {
            let output = process.stdout
            number = String(output.prefix { $0.isNumber })
            return !number.isEmpty && output.contains("\n")
        }
        display = ":\(number)"
    }

    /// Checks that programs are there which only long runs of the tests install.
    package static func require(_ programs: [String]) throws {
        for program in programs where !FileManager.default.fileExists(atPath: program) {
            throw PeerError("no \(program); Tests/run --long installs it")
        }
    }

    package func stop() { process.stop() }
}
