// Runs the process, from reading the configuration to the end.

import ArgumentParser
import Foundation
import Logging
import PawlConfiguration
import ServiceLifecycle
import UnixSignals

/// Runs a gateway or a sidecar until it is stopped.
struct Running {
    let role: Role
    /// Reads the configuration, at the start and for each reload.
    let load: @Sendable () throws -> PawlConfiguration
    /// The form of the log as an option has it, for failures before the configuration is known; nil if there is none.
    var logFormat: String? = ProcessInfo.processInfo.environment["PAWL_LOG_FORMAT"]

    func run() async throws {
        CrashReports.keepMemoryOut()
        // A write beyond the limit of file sizes then fails, as on a full disk, and does not kill the process.
        signal(SIGXFSZ, SIG_IGN)
        let configuration: PawlConfiguration
        do {
            configuration = try load()
        } catch let error as ConfigurationError {
            let format = logFormat.flatMap(PawlConfiguration.Log.Format.init) ?? .text
            throw Self.fail(error, exit: ExitStatus.configuration, format)
        }
        let format = configuration.log.format
        let level = Logger.Level(rawValue: configuration.log.level.rawValue) ?? .info
        LoggingSystem.bootstrap { label in
            switch format {
            case .json: return JSONLogHandler(level: level)
            case .text:
                var handler = StreamLogHandler.standardError(label: label)
                handler.logLevel = level
                return handler
            }
        }
        let logger = Logger(label: "pawl")
        let stop = StopSignal()
        let assembled: Assembly.Assembled
        do {
            assembled = try Assembly.assemble(
                configuration, as: role, logger: logger, reload: load, requestStop: { stop.send() })
        } catch {
            // A wrong mapping is a wrong configuration: starting again does not help.
            let exit = error is ConfigurationError ? ExitStatus.configuration : ExitStatus.failed
            throw Self.fail(error, exit: exit, format, after: "pawl does not start: ")
        }
        for notice in assembled.notices { Self.announce(notice, format) }
        let manager = ServiceManager()
        let service = GatewayService(assembled: assembled, manager: manager) { Self.announce($0, format) }
        let group = ServiceGroup(
            configuration: .init(
                services: [
                    .init(service: service, successTerminationBehavior: .gracefullyShutdownGroup),
                    .init(
                        service: HangupService(gateway: assembled.gateway, manager: manager),
                        successTerminationBehavior: .ignore),
                    .init(service: stop, successTerminationBehavior: .gracefullyShutdownGroup),
                ], gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        do {
            try await group.run()
        } catch {
            throw Self.fail(error, exit: ExitStatus.failed, format, after: "pawl stopped: ")
        }
    }

    /// Writes a failure that ends the process, as the log has its lines.
    private static func fail(
        _ error: any Error, exit: Int32, _ format: PawlConfiguration.Log.Format, after prefix: String = ""
    ) -> ExitCode {
        switch format {
        case .text: return Failures.write(error, exit: exit, after: prefix)
        case .json:
            let report = Failures.report(error, exit: exit, after: prefix)
            JSONLogHandler.writeToStandardError(
                LogLine(report.message, level: .critical, code: report.code, exit: exit).text)
            return ExitCode(exit)
        }
    }

    /// Writes a notice about the start to standard output.
    private static func announce(_ notice: String, _ format: PawlConfiguration.Log.Format) {
        switch format {
        case .text: print(Printable.line(notice))
        case .json: print(LogLine(notice, level: .notice).text)
        }
        fflush(nil)
    }
}

/// Reads the configuration again on SIGHUP.
private struct HangupService: Service {
    let gateway: Gateway
    let manager: ServiceManager?

    func run() async throws {
        await withGracefulShutdownHandler {
            for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
                manager?.notify(.reloading)
                do {
                    _ = try gateway.reload(gateway.prepareReload())
                    manager?.notify(.ready(status: "Read its configuration again"))
                } catch {
                    gateway.logger.error(
                        "configuration not reloaded, the old one stays: \(Assembly.message(of: error))")
                    manager?.notify(.ready(status: "Serves with the configuration before: the new one was refused"))
                }
            }
        } onGracefulShutdown: {
        }
    }
}

/// Ends the service group when a command requests it (`pawl drain`).
private final class StopSignal: Service, Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)

    func send() { continuation.finish() }

    func run() async throws {
        for await _ in stream.cancelOnGracefulShutdown() {}
    }
}

/// Limits what a crash report shows: keys are in memory, and others may read the log.
private enum CrashReports {
    /// Shows the functions on the stack, without registers and the memory that they point to.
    static let setting =
        "enable=yes,registers=none,threads=crashed,images=none,symbolicate=fast,interactive=no,color=no"

    /// The program that writes reports, where the Debian package has it: a program with the runtime inside finds none.
    private static let reporter = "/usr/libexec/pawl/swift-backtrace"

    /// Disables core dumps, and sets `SWIFT_BACKTRACE` to ``setting`` if it is not set.
    ///
    /// The Swift runtime reads the variable before any code of ours runs, so the program executes itself again. The
    /// process keeps its id.
    static func keepMemoryOut() {
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        guard getenv("SWIFT_BACKTRACE") == nil else { return }
        let place = access(reporter, X_OK) == 0 ? ",swift-backtrace=\(reporter)" : ""
        setenv("SWIFT_BACKTRACE", setting + place, 1)
        execv("/proc/self/exe", CommandLine.unsafeArgv)
        // If execv fails, reports are as the runtime makes them. The service file sets the variable itself.
    }
}
