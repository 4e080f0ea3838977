// Runs the process, from reading the configuration to the end.

import ArgumentParser
import Foundation
import Logging
import PawlConfiguration
import ServiceLifecycle
import UnixSignals

/// Runs a gateway, or a sidecar for one or more networks, until it is stopped.
struct Running {
    /// What one gateway of the process is configured by.
    struct Source: Sendable {
        /// The name of the network in the configuration file; nil if there is only one.
        var network: String?
        /// Reads the configuration, at the start and for each reload.
        var load: @Sendable () throws -> PawlConfiguration
    }

    let role: Role
    /// Reads what the process consists of; never empty.
    let sources: @Sendable () throws -> [Source]
    /// The form of the log as an option has it, for failures before the configuration is known; nil if there is none.
    var logFormat: String? = ProcessInfo.processInfo.environment["PAWL_LOG_FORMAT"]

    init(role: Role, load: @escaping @Sendable () throws -> PawlConfiguration) {
        self.init(role: role) { [Source(network: nil, load: load)] }
    }

    init(role: Role, sources: @escaping @Sendable () throws -> [Source]) {
        (self.role, self.sources) = (role, sources)
    }

    func run() async throws {
        CrashReports.keepMemoryOut()
        // A write beyond the limit of file sizes then fails, as on a full disk, and does not kill the process.
        signal(SIGXFSZ, SIG_IGN)
        let configured: [(source: Source, configuration: PawlConfiguration)]
        do {
            configured = try sources().map { ($0, try $0.load()) }
            try SidecarNetworks.check(configured.map { ($0.source.network ?? "", $0.configuration) })
        } catch let error as ConfigurationError {
            let format = logFormat.flatMap(PawlConfiguration.Log.Format.init) ?? .text
            throw Self.fail(error, exit: ExitStatus.configuration, format)
        }
        // One process has one log.
        guard let log = configured.first?.configuration.log else { return }
        let format = log.format
        let level = Logger.Level(rawValue: log.level.rawValue) ?? .info
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
        let stop = StopSignal(count: configured.count)
        var services: [ServiceGroupConfiguration.ServiceConfiguration] = []
        for (source, configuration) in configured {
            // With one network, as before; with several, the first one speaks to the service manager.
            let manager = services.isEmpty ? ServiceManager() : nil
            let name = source.network.map { "\($0): " } ?? ""
            let start: GatewayService.Start
            let gateway: @Sendable () -> Gateway?
            do {
                let logger = source.network.map { Logger(label: "pawl.\($0)") } ?? logger
                let requestStop = stop.sender()
                if let standby = try Assembly.join(configuration, as: role, logger: logger, requestStop: requestStop) {
                    gateway = { standby.gateway }
                    start = .standby(standby) { [role] in
                        try Assembly.assemble(
                            configuration, as: role, logger: logger, standby: standby, reload: source.load,
                            requestStop: requestStop)
                    }
                } else {
                    let assembled = try Assembly.assemble(
                        configuration, as: role, logger: logger, reload: source.load, requestStop: requestStop)
                    for notice in assembled.notices { Self.announce(name + notice, format) }
                    gateway = { assembled.gateway }
                    start = .assembled(assembled)
                }
            } catch {
                throw Self.failToStart(error, format, name)
            }
            let service = GatewayService(start: start, manager: manager) { Self.announce(name + $0, format) }
            // One that has failed lets the others of the process stop in their order.
            services.append(
                .init(
                    service: service, successTerminationBehavior: .gracefullyShutdownGroup,
                    failureTerminationBehavior: .gracefullyShutdownGroup))
            services.append(
                .init(service: HangupService(gateway: gateway, manager: manager), successTerminationBehavior: .ignore))
        }
        services.append(.init(service: stop, successTerminationBehavior: .gracefullyShutdownGroup))
        let group = ServiceGroup(
            configuration: .init(services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger))
        do {
            try await group.run()
        } catch let failure as GatewayService.Failure {
            throw Self.failToStart(failure.cause, format, "")
        } catch {
            throw Self.fail(error, exit: ExitStatus.failed, format, after: "pawl stopped: ")
        }
    }

    /// - Parameter name: of the network, with a colon; empty if there is only one.
    private static func failToStart(
        _ error: any Error, _ format: PawlConfiguration.Log.Format, _ name: String
    ) -> ExitCode {
        // A wrong mapping is a wrong configuration: starting again does not help.
        let exit = error is ConfigurationError ? ExitStatus.configuration : ExitStatus.failed
        return fail(error, exit: exit, format, after: "pawl does not start: \(name)")
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
    /// Nil while it stands by. It serves with the configuration of its start.
    let gateway: @Sendable () -> Gateway?
    let manager: ServiceManager?

    func run() async throws {
        await withGracefulShutdownHandler {
            for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
                guard let gateway = self.gateway() else { continue }
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

/// Ends the service group when a command has requested it (`pawl drain`) of each gateway in the process.
private final class StopSignal: Service, Sendable {
    private let (stream, continuation) = AsyncStream.makeStream(of: Void.self)
    private let missing: Shared<Int>

    init(count: Int) { missing = Shared(count) }

    /// Returns what one gateway calls to end. Only its first call counts.
    func sender() -> @Sendable () -> Void {
        let hasSent = Shared(false)
        return { [self] in
            let isFirst = hasSent.withLock { sent in
                defer { sent = true }
                return !sent
            }
            let isLast = missing.withLock { missing in
                if isFirst { missing -= 1 }
                return missing == 0
            }
            if isLast { continuation.finish() }
        }
    }

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
